-- Release 0.5. {schema} stands for the schema's name.

-- Where in the user's code the failure of an alert's task was, as JSON text.
ALTER TABLE {schema}.alert ADD COLUMN trace text;

-- Alerts that tell of a row which a release cannot read: one open for each task, whoever finds it.
CREATE UNIQUE INDEX alert_unreadable ON {schema}.alert (task_no, step) WHERE cause = 'unreadable' AND closed_at IS NULL;

-- Alerts that are open: monitors count them every few seconds.
CREATE INDEX alert_open ON {schema}.alert (no) WHERE closed_at IS NULL;

-- Whose a task is: an App of another name does not run it. Empty: not said, as of tasks that are here already.
ALTER TABLE {schema}.task ADD COLUMN app text NOT NULL DEFAULT '';
ALTER TABLE {schema}.step ADD COLUMN app text NOT NULL DEFAULT '';
-- The trace of who submitted it: traceparent, a space and tracestate, as W3C Trace Context has them.
ALTER TABLE {schema}.task ADD COLUMN trace_context text;
-- The ledger that it came with, which stays. Of ledgers that are here already, no task keeps the number.
ALTER TABLE {schema}.task ADD COLUMN from_ledger bigint;
ALTER TABLE {schema}.ledger ADD COLUMN linked bigint NOT NULL DEFAULT 0;
CREATE INDEX task_from_ledger ON {schema}.task (from_ledger, task_no) WHERE from_ledger IS NOT NULL;
CREATE INDEX task_from_ledger_open ON {schema}.task (from_ledger, task_no)
 WHERE from_ledger IS NOT NULL AND state NOT IN ('processed', 'compensated', 'error');
-- The token that submitted it, if its open tasks are capped.
ALTER TABLE {schema}.task ADD COLUMN submitter text;
ALTER TABLE {schema}.task ADD COLUMN snoozed_until bigint;
CREATE INDEX task_submitter_open ON {schema}.task (submitter)
 WHERE submitter IS NOT NULL AND state NOT IN ('processed', 'compensated', 'error');
-- To the span of the last task of a convoy that ended in its turn: trace and span, in hexadecimal.
ALTER TABLE {schema}.convoy ADD COLUMN trace_link text;
DROP INDEX {schema}.task_due, {schema}.task_undo_due, {schema}.step_takeable;
CREATE INDEX task_due ON {schema}.task (workflow, app, not_before)
 WHERE locked_by IS NULL AND not_before IS NOT NULL AND paused_at IS NULL AND state <> 'compensating';
CREATE INDEX task_undo_due ON {schema}.task (app, not_before)
 WHERE locked_by IS NULL AND not_before IS NOT NULL AND paused_at IS NULL AND state = 'compensating';
-- Claiming by shares: the backlog of one workflow must not be read for the share of another one.
CREATE INDEX task_share ON {schema}.task (workflow, app, priority, not_before, task_no)
 WHERE locked_by IS NULL AND not_before IS NOT NULL AND paused_at IS NULL AND state <> 'compensating';
CREATE INDEX step_takeable ON {schema}.step (agent, app, priority, not_before, step_no)
 WHERE state = 'pending' AND kind <> 'timer' AND not_before IS NOT NULL;

-- What workflows are called, for each App that has one of the name: {schema}.submit tells by it whose a task is.
CREATE TABLE {schema}.app_workflow (
    name text NOT NULL,
    app text NOT NULL,
    policy text NOT NULL,
    complete_within double precision,
    PRIMARY KEY (name, app)
);
INSERT INTO {schema}.app_workflow (name, app, policy, complete_within)
SELECT DISTINCT ON (w.name, process.about::json ->> 'app') w.name, process.about::json ->> 'app', w.policy, w.complete_within
  FROM {schema}.process, json_each_text(coalesce(process.about::json -> 'policies', '{}')) AS of_app, {schema}.workflow AS w
 WHERE w.name = of_app.key AND process.about::json ->> 'app' <> ''
 ORDER BY 1, 2;

-- No update of a step leaves all its indexed columns as they were, so none could use the room that was left in its page.
ALTER TABLE {schema}.step RESET (fillfactor);

-- Payloads that people gave or replaced, with those they replaced. No row is changed; they go with their task, also where a
-- process of an earlier release, which does not know the table, purges it.
CREATE TABLE {schema}.edit (
    task_no bigint NOT NULL REFERENCES {schema}.task ON DELETE CASCADE,
    link integer NOT NULL,          -- of the commit in the task's history that tells of it
    ordinal integer NOT NULL,       -- of the step; 0: the task itself
    what text NOT NULL,             -- arguments, result, output
    incarnation integer NOT NULL,
    attempt integer NOT NULL,       -- of the step: the first one that this edit concerns
    at bigint NOT NULL,
    edited_by text NOT NULL,
    reason text NOT NULL,
    before text,                    -- null: there was none
    after text,                     -- null: it was taken away
    key_before text NOT NULL,       -- the step's idempotency key until then
    key_after text NOT NULL,
    PRIMARY KEY (task_no, link)
);

-- What attempts answered when they no longer counted: the first answer of each.
CREATE TABLE {schema}.late_answer (
    task_no bigint NOT NULL REFERENCES {schema}.task ON DELETE CASCADE,
    ordinal integer NOT NULL,
    fence bigint NOT NULL,          -- of the step, when the attempt was dispatched
    attempt integer NOT NULL,
    verdict text NOT NULL,          -- late, stale
    outcome text NOT NULL,          -- succeeded: answer is a result; failed: it is a failure
    answer text NOT NULL,
    answered_at bigint NOT NULL,
    complete_by bigint NOT NULL,    -- of that attempt
    link integer NOT NULL,          -- of the commit in the task's history that tells of it
    PRIMARY KEY (task_no, ordinal, fence)
);

-- Circuit breakers of Agents that were opened or paused at least once.
CREATE TABLE {schema}.breaker (
    app text NOT NULL,
    agent text NOT NULL,            -- the name of the Agent
    target text NOT NULL,           -- the part of its service; empty: all of it
    state text NOT NULL,            -- closed, open, half_open
    fence bigint NOT NULL,          -- grows with each change of state and each wave of canaries
    policy text NOT NULL,           -- the Breaker of the process that opened it, as JSON text
    changed_at bigint NOT NULL,
    opened_at bigint,               -- when the last outage began
    failing_since bigint,           -- start of the window whose failures opened it
    closed_at bigint,               -- when the last outage ended
    probe_at bigint,                -- when the next canary may go; null: only a person closes it
    ramp_from bigint,               -- when the first canary succeeded
    wave bigint NOT NULL,           -- canaries that may go under this fence
    granted bigint NOT NULL,        -- canaries of this wave
    succeeded bigint NOT NULL,
    failed bigint NOT NULL,
    reason text NOT NULL,
    opened_by text NOT NULL,        -- a person; empty: it opened by itself
    paused_at bigint,               -- since when a person keeps the Agent from taking anything
    paused_by text NOT NULL,
    pause_reason text NOT NULL,
    PRIMARY KEY (app, agent, target)
);

CREATE INDEX breaker_half_open ON {schema}.breaker (agent, app, target) WHERE state = 'half_open';

-- Limits of Agents that all processes share, as the process that was started last has declared them.
CREATE TABLE {schema}.agent_limits (
    app text NOT NULL,
    agent text NOT NULL,            -- the name of the Agent
    limits text NOT NULL,           -- JSON array of LimitPolicies; empty: none any more
    process_no bigint NOT NULL,     -- the process start that declared them
    declared_at bigint NOT NULL,
    has_keyless boolean NOT NULL,   -- steps may be left that were kept before these limits
    look_at bigint NOT NULL,        -- when such steps are looked for again
    last_keys text COLLATE "C" NOT NULL, -- behind them requests of another Agent are looked for
    PRIMARY KEY (app, agent)
);

-- Calls of rate limits that began a short time ago.
CREATE TABLE {schema}.rate (
    app text NOT NULL,
    agent text NOT NULL,
    name text NOT NULL,             -- of the limit
    key text NOT NULL,              -- empty: the limit has no keys
    begun text NOT NULL,            -- JSON array of instants and numbers of calls
    until bigint NOT NULL,          -- from then on the row says nothing
    PRIMARY KEY (app, agent, name, key)
);

-- Keys under which requests of Agents with limits wait, and when a Take looks at them next.
CREATE TABLE {schema}.waiting_keys (
    app text NOT NULL,
    agent text NOT NULL,
    keys text COLLATE "C" NOT NULL, -- as in the rows of the requests
    look_at bigint NOT NULL,        -- not before that a request under them is due and has room
    PRIMARY KEY (app, agent, keys)
);
CREATE INDEX waiting_keys_look ON {schema}.waiting_keys (agent, app, look_at, keys);

-- What processes counted of the calls of their Agents, a row for each minute; and for each App the sum of older minutes.
CREATE TABLE {schema}.agent_metrics (
    app text NOT NULL,
    process_no bigint NOT NULL,     -- 0: the sum
    minute bigint NOT NULL,         -- since 1970, by the store's clock; 0: the sum
    calls bigint NOT NULL,          -- only grows
    counts text NOT NULL,           -- by Agent, as JSON text
    PRIMARY KEY (app, process_no, minute)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.0, autovacuum_vacuum_threshold = 500);

-- Schedules of all Apps.
CREATE TABLE {schema}.schedule (
    app text NOT NULL,
    name text NOT NULL,             -- unique in its App
    declaration text NOT NULL,      -- how it was declared, as JSON text
    state text NOT NULL,            -- active, paused, ended
    anchor bigint NOT NULL,         -- since when it is declared so; periods count from here
    next_at bigint,                 -- the instant that is due next
    look_at bigint,                 -- when the leader looks at it next: next_at with its jitter; null: never
    decided_until bigint NOT NULL,  -- about every instant up to here it is decided
    owed_until bigint,              -- instants up to here are run, however old
    last_at bigint,                 -- the instant of the last run
    last_task text NOT NULL,        -- the id of its task
    last_task_no bigint NOT NULL,
    runs bigint NOT NULL,           -- instants that were run
    passed_over bigint NOT NULL,    -- instants that were not
    problem text NOT NULL,          -- why nothing is submitted; empty: there is no problem
    problem_cause text NOT NULL,    -- code, arguments; empty
    problem_since bigint,
    undeclared_at bigint,           -- since when the code does not declare it any more
    paused_at bigint,
    paused_by text NOT NULL,
    pause_reason text NOT NULL,
    changed_at bigint NOT NULL,     -- when it was declared so
    revision bigint NOT NULL,       -- grows with each change
    PRIMARY KEY (app, name)
);

-- The leader finds what is due, and what is due next, without a look at any other schedule.
CREATE INDEX schedule_due ON {schema}.schedule (look_at, app, name) WHERE look_at IS NOT NULL;
-- Runs of schedules that have not ended. A run's id is APP/NAME@INSTANT; another collation would order it otherwise.
CREATE INDEX task_open_run ON {schema}.task (task_id COLLATE "C")
 WHERE state IN ('pending', 'processing', 'compensating') AND strpos(task_id, '@') > 0 AND right(task_id, 1) = 'Z';

-- Tokens of the HTTP API. The secret in a token is kept nowhere.
CREATE TABLE {schema}.token (
    token_id text PRIMARY KEY,
    name text NOT NULL,             -- signs what its holder does
    digest text NOT NULL,           -- SHA-256 of the secret, hexadecimal
    scopes text NOT NULL,           -- JSON array of texts
    created_at bigint NOT NULL,
    created_by text NOT NULL,
    expires_at bigint,                -- null: never
    last_used_at bigint,              -- within a minute
    revoked_at bigint,
    revoked_by text NOT NULL,
    revoked_reason text NOT NULL,
    apps text NOT NULL,             -- JSON array of texts: it is restricted to these; empty: to none
    workflows text NOT NULL,        -- in the same way
    open_tasks_max bigint           -- tasks of it that may be open; null: any number
);

-- Random secrets of the store, made at their first use. Who may only read the store may not read them.
CREATE TABLE {schema}.secret (
    name text PRIMARY KEY,
    value text NOT NULL             -- bytes in hexadecimal
);

-- Who could read or write the tables may do so with the new ones; functions.sql gives the rights on functions.
DO $rights$
DECLARE
    one record;
BEGIN
    FOR one IN SELECT DISTINCT given.grantee::regrole AS role
                 FROM pg_catalog.pg_class AS c, LATERAL pg_catalog.aclexplode(c.relacl) AS given
                WHERE c.oid = '{schema}.task'::regclass AND given.privilege_type = 'INSERT'
                  AND given.grantee NOT IN (0, c.relowner)
    LOOP
        EXECUTE format('GRANT INSERT, UPDATE, DELETE ON {schema}.app_workflow, {schema}.breaker, {schema}.agent_limits, '
                       '{schema}.rate, {schema}.waiting_keys, {schema}.agent_metrics, {schema}.schedule, {schema}.token TO %s', one.role);
        EXECUTE format('GRANT SELECT, INSERT, DELETE ON {schema}.secret TO %s', one.role);
    END LOOP;
    FOR one IN SELECT DISTINCT given.grantee::regrole AS role
                 FROM pg_catalog.pg_class AS c, LATERAL pg_catalog.aclexplode(c.relacl) AS given
                WHERE c.oid = '{schema}.task'::regclass AND given.privilege_type = 'SELECT'
                  AND given.grantee NOT IN (0, c.relowner)
    LOOP
        EXECUTE format('GRANT SELECT ON {schema}.app_workflow, {schema}.breaker, {schema}.agent_limits, {schema}.rate, '
                       '{schema}.agent_metrics, {schema}.schedule, {schema}.token TO %s', one.role);
    END LOOP;
    -- What is kept beside the history may be read, added to and removed by the same roles; nobody changes it.
    FOR one IN SELECT given.grantee::regrole AS role, string_agg(given.privilege_type, ', ') AS rights
                 FROM pg_catalog.pg_class AS c, LATERAL pg_catalog.aclexplode(c.relacl) AS given
                WHERE c.oid = '{schema}.history'::regclass AND given.grantee NOT IN (0, c.relowner)
                  AND given.privilege_type IN ('SELECT', 'INSERT', 'DELETE')
                GROUP BY given.grantee
    LOOP
        EXECUTE format('GRANT %s ON {schema}.edit, {schema}.late_answer TO %s', one.rights, one.role);
    END LOOP;
END
$rights$;

-- Of a step: what its Agent's breaker is asked by, and what is given back after an outage.
ALTER TABLE {schema}.step ADD COLUMN target text NOT NULL DEFAULT '';
ALTER TABLE {schema}.step ADD COLUMN canary bigint;
ALTER TABLE {schema}.step ADD COLUMN charged_at text;
-- What an attempt kept for those after it, as JSON text.
ALTER TABLE {schema}.step ADD COLUMN checkpoint text;
-- Of a step: what its Agent's limits count it under, as a JSON object.
ALTER TABLE {schema}.step ADD COLUMN limit_keys text COLLATE "C";
CREATE INDEX step_waiting_keys ON {schema}.step (agent, app, limit_keys, priority, not_before, step_no)
 WHERE state = 'pending' AND limit_keys IS NOT NULL;
CREATE INDEX step_running_keys ON {schema}.step (agent, app, limit_keys)
 WHERE state = 'running' AND limit_keys IS NOT NULL;
-- Whether a request may go to other Agents that provide its step: pinned, interchangeable; empty: there are none.
ALTER TABLE {schema}.step ADD COLUMN routing text NOT NULL DEFAULT '';
-- What a process reports of its Agents with each renewal, as JSON text.
ALTER TABLE {schema}.process ADD COLUMN room text NOT NULL DEFAULT '';

-- Of a lease: who holds it where it is no process, for how long and since when, and who took it from its holder.
ALTER TABLE {schema}.lease ADD COLUMN owner text NOT NULL DEFAULT '';
ALTER TABLE {schema}.lease ADD COLUMN duration bigint NOT NULL DEFAULT 0;
ALTER TABLE {schema}.lease ADD COLUMN since bigint NOT NULL DEFAULT 0;
ALTER TABLE {schema}.lease ADD COLUMN broken_by text NOT NULL DEFAULT '';
ALTER TABLE {schema}.lease ADD COLUMN broken_reason text NOT NULL DEFAULT '';
