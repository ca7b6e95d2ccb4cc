-- Whose a task is: an App of another name does not run it. Empty: not said, as of tasks that are here already.
ALTER TABLE arriero_task ADD COLUMN app TEXT NOT NULL DEFAULT '';
ALTER TABLE arriero_step ADD COLUMN app TEXT NOT NULL DEFAULT '';
-- The trace of who submitted it: traceparent, a space and tracestate, as W3C Trace Context has them.
ALTER TABLE arriero_task ADD COLUMN trace_context TEXT;
-- The ledger that it came with, which stays. Of ledgers that are here already, no task keeps the number.
ALTER TABLE arriero_task ADD COLUMN from_ledger INTEGER;
ALTER TABLE arriero_ledger ADD COLUMN linked INTEGER NOT NULL DEFAULT 0;
CREATE INDEX arriero_task_from_ledger ON arriero_task (from_ledger) WHERE from_ledger IS NOT NULL;
CREATE INDEX arriero_task_from_ledger_open ON arriero_task (from_ledger)
 WHERE from_ledger IS NOT NULL AND state NOT IN ('processed', 'compensated', 'error');
-- The token that submitted it, if its open tasks are capped.
ALTER TABLE arriero_task ADD COLUMN submitter TEXT;
ALTER TABLE arriero_task ADD COLUMN snoozed_until INTEGER;
CREATE INDEX arriero_task_submitter_open ON arriero_task (submitter)
 WHERE submitter IS NOT NULL AND state NOT IN ('processed', 'compensated', 'error');
-- To the span of the last task of a convoy that ended in its turn: trace and span, in hexadecimal.
ALTER TABLE arriero_convoy ADD COLUMN trace_link TEXT;
DROP INDEX arriero_step_takeable;
CREATE INDEX arriero_step_takeable ON arriero_step (agent, app, priority, not_before)
 WHERE state = 'pending' AND kind <> 'timer';

-- What is due, by workflow and App: a process must not read through the backlog of workflows whose code it does not have.
CREATE INDEX arriero_task_due ON arriero_task (workflow, app, priority, not_before)
 WHERE locked_by IS NULL AND not_before IS NOT NULL AND paused_at IS NULL AND state <> 'compensating';
CREATE INDEX arriero_task_undo_due ON arriero_task (app, priority, not_before)
 WHERE locked_by IS NULL AND not_before IS NOT NULL AND paused_at IS NULL AND state = 'compensating';

-- Where in the user's code the failure of an alert's task was, as JSON text.
ALTER TABLE arriero_alert ADD COLUMN trace TEXT;

-- Alerts that tell of a row which a release cannot read: one open for each task, whoever finds it.
CREATE UNIQUE INDEX arriero_alert_unreadable ON arriero_alert (task_no, step) WHERE cause = 'unreadable' AND closed_at IS NULL;

-- Alerts that are open, and convoys that stand still: monitors count them every few seconds.
CREATE INDEX arriero_alert_open ON arriero_alert (no) WHERE closed_at IS NULL;
CREATE INDEX arriero_convoy_still ON arriero_convoy (convoy_no) WHERE state IN ('stopped', 'gap') OR parked_at IS NOT NULL;

-- Payloads that people gave or replaced, with those they replaced. No row is changed; they go with their task, also where a
-- process of an earlier release, which does not know the table, purges it.
CREATE TABLE arriero_edit (
    task_no INTEGER NOT NULL,
    link INTEGER NOT NULL,          -- of the commit in the task's history that tells of it
    ordinal INTEGER NOT NULL,       -- of the step; 0: the task itself
    what TEXT NOT NULL,             -- arguments, result, output
    incarnation INTEGER NOT NULL,
    attempt INTEGER NOT NULL,       -- of the step: the first one that this edit concerns
    at INTEGER NOT NULL,
    edited_by TEXT NOT NULL,
    reason TEXT NOT NULL,
    before TEXT,                    -- null: there was none
    after TEXT,                     -- null: it was taken away
    key_before TEXT NOT NULL,       -- the step's idempotency key until then
    key_after TEXT NOT NULL,
    PRIMARY KEY (task_no, link)
) WITHOUT ROWID;

-- What attempts answered when they no longer counted: the first answer of each.
CREATE TABLE arriero_late_answer (
    task_no INTEGER NOT NULL,
    ordinal INTEGER NOT NULL,
    fence INTEGER NOT NULL,         -- of the step, when the attempt was dispatched
    attempt INTEGER NOT NULL,
    verdict TEXT NOT NULL,          -- late, stale
    outcome TEXT NOT NULL,          -- succeeded: answer is a result; failed: it is a failure
    answer TEXT NOT NULL,
    answered_at INTEGER NOT NULL,
    complete_by INTEGER NOT NULL,   -- of that attempt
    link INTEGER NOT NULL,          -- of the commit in the task's history that tells of it
    PRIMARY KEY (task_no, ordinal, fence)
) WITHOUT ROWID;

CREATE TRIGGER arriero_task_removed AFTER DELETE ON arriero_task
BEGIN
    DELETE FROM arriero_edit WHERE task_no = OLD.task_no;
    DELETE FROM arriero_late_answer WHERE task_no = OLD.task_no;
END;

-- Of a step: what its Agent's breaker is asked by, and what is given back after an outage.
ALTER TABLE arriero_step ADD COLUMN target TEXT NOT NULL DEFAULT '';
ALTER TABLE arriero_step ADD COLUMN canary INTEGER;
ALTER TABLE arriero_step ADD COLUMN charged_at TEXT;
-- What an attempt kept for those after it, as JSON text.
ALTER TABLE arriero_step ADD COLUMN checkpoint TEXT;
-- Of a step: what its Agent's limits count it under, as a JSON object.
ALTER TABLE arriero_step ADD COLUMN limit_keys TEXT;
-- Whether a request may go to other Agents that provide its step: pinned, interchangeable; empty: there are none.
ALTER TABLE arriero_step ADD COLUMN routing TEXT NOT NULL DEFAULT '';
-- What a process reports of its Agents with each renewal, as JSON text.
ALTER TABLE arriero_process ADD COLUMN room TEXT NOT NULL DEFAULT '';
-- Each renewal reads the processes that are not retired.
CREATE INDEX arriero_process_alive ON arriero_process (process_no) WHERE NOT retired;

-- Circuit breakers of Agents that were opened or paused at least once.
CREATE TABLE arriero_breaker (
    app TEXT NOT NULL,
    agent TEXT NOT NULL,            -- the name of the Agent
    target TEXT NOT NULL,           -- the part of its service; empty: all of it
    state TEXT NOT NULL,            -- closed, open, half_open
    fence INTEGER NOT NULL,         -- grows with each change of state and each wave of canaries
    policy TEXT NOT NULL,           -- the Breaker of the process that opened it, as JSON text
    changed_at INTEGER NOT NULL,
    opened_at INTEGER,              -- when the last outage began
    failing_since INTEGER,          -- start of the window whose failures opened it
    closed_at INTEGER,              -- when the last outage ended
    probe_at INTEGER,               -- when the next canary may go; null: only a person closes it
    ramp_from INTEGER,              -- when the first canary succeeded
    wave INTEGER NOT NULL,          -- canaries that may go under this fence
    granted INTEGER NOT NULL,       -- canaries of this wave
    succeeded INTEGER NOT NULL,
    failed INTEGER NOT NULL,
    reason TEXT NOT NULL,
    opened_by TEXT NOT NULL,        -- a person; empty: it opened by itself
    paused_at INTEGER,              -- since when a person keeps the Agent from taking anything
    paused_by TEXT NOT NULL,
    pause_reason TEXT NOT NULL,
    PRIMARY KEY (app, agent, target)
) WITHOUT ROWID;
CREATE INDEX arriero_breaker_half_open ON arriero_breaker (agent, app, target) WHERE state = 'half_open';

CREATE INDEX arriero_step_waiting_keys ON arriero_step (agent, app, limit_keys, priority, not_before)
 WHERE state = 'pending' AND limit_keys IS NOT NULL;
CREATE INDEX arriero_step_running_keys ON arriero_step (agent, app, limit_keys)
 WHERE state = 'running' AND limit_keys IS NOT NULL;

-- Limits of Agents that all processes share, as the process that was started last has declared them.
CREATE TABLE arriero_agent_limits (
    app TEXT NOT NULL,
    agent TEXT NOT NULL,            -- the name of the Agent
    limits TEXT NOT NULL,           -- JSON array of LimitPolicies; empty: none any more
    process_no INTEGER NOT NULL,    -- the process start that declared them
    declared_at INTEGER NOT NULL,
    has_keyless INTEGER NOT NULL,   -- steps may be left that were kept before these limits
    look_at INTEGER NOT NULL,       -- when such steps are looked for again
    last_keys TEXT NOT NULL,        -- behind them requests of another Agent are looked for
    PRIMARY KEY (app, agent)
) WITHOUT ROWID;

-- Calls of rate limits that began a short time ago.
CREATE TABLE arriero_rate (
    app TEXT NOT NULL,
    agent TEXT NOT NULL,
    name TEXT NOT NULL,             -- of the limit
    key TEXT NOT NULL,              -- empty: the limit has no keys
    begun TEXT NOT NULL,            -- JSON array of instants and numbers of calls
    until INTEGER NOT NULL,         -- from then on the row says nothing
    PRIMARY KEY (app, agent, name, key)
) WITHOUT ROWID;

-- Keys under which requests of Agents with limits wait, and when a Take looks at them next.
CREATE TABLE arriero_waiting_keys (
    app TEXT NOT NULL,
    agent TEXT NOT NULL,
    keys TEXT NOT NULL,             -- as in the rows of the requests
    look_at INTEGER NOT NULL        -- not before that a request under them is due and has room
);
CREATE UNIQUE INDEX arriero_waiting_keys_each ON arriero_waiting_keys (app, agent, keys);
CREATE INDEX arriero_waiting_keys_look ON arriero_waiting_keys (agent, app, look_at, keys);

-- What processes counted of the calls of their Agents, a row for each minute; and for each App the sum of older minutes.
CREATE TABLE arriero_agent_metrics (
    app TEXT NOT NULL,
    process_no INTEGER NOT NULL,    -- 0: the sum
    minute INTEGER NOT NULL,        -- since 1970, by the store's clock; 0: the sum
    calls INTEGER NOT NULL,         -- only grows
    counts TEXT NOT NULL,           -- by Agent, as JSON text
    PRIMARY KEY (app, process_no, minute)
) WITHOUT ROWID;

-- Of a lease: who holds it where it is no process, for how long and since when, and who took it from its holder.
ALTER TABLE arriero_lease ADD COLUMN owner TEXT NOT NULL DEFAULT '';
ALTER TABLE arriero_lease ADD COLUMN duration INTEGER NOT NULL DEFAULT 0;
ALTER TABLE arriero_lease ADD COLUMN since INTEGER NOT NULL DEFAULT 0;
ALTER TABLE arriero_lease ADD COLUMN broken_by TEXT NOT NULL DEFAULT '';
ALTER TABLE arriero_lease ADD COLUMN broken_reason TEXT NOT NULL DEFAULT '';

-- Random secrets of the store, made at their first use.
CREATE TABLE arriero_secret (
    name TEXT PRIMARY KEY,
    value TEXT NOT NULL             -- bytes in hexadecimal
) WITHOUT ROWID;

-- Schedules of all Apps.
CREATE TABLE arriero_schedule (
    app TEXT NOT NULL,
    name TEXT NOT NULL,             -- unique in its App
    declaration TEXT NOT NULL,      -- how it was declared, as JSON text
    state TEXT NOT NULL,            -- active, paused, ended
    anchor INTEGER NOT NULL,        -- since when it is declared so; periods count from here
    next_at INTEGER,                -- the instant that is due next
    look_at INTEGER,                -- when the leader looks at it next: next_at with its jitter; null: never
    decided_until INTEGER NOT NULL, -- about every instant up to here it is decided
    owed_until INTEGER,             -- instants up to here are run, however old
    last_at INTEGER,                -- the instant of the last run
    last_task TEXT NOT NULL,        -- the id of its task
    last_task_no INTEGER NOT NULL,
    runs INTEGER NOT NULL,          -- instants that were run
    passed_over INTEGER NOT NULL,   -- instants that were not
    problem TEXT NOT NULL,          -- why nothing is submitted; empty: there is no problem
    problem_cause TEXT NOT NULL,    -- code, arguments; empty
    problem_since INTEGER,
    undeclared_at INTEGER,          -- since when the code does not declare it any more
    paused_at INTEGER,
    paused_by TEXT NOT NULL,
    pause_reason TEXT NOT NULL,
    changed_at INTEGER NOT NULL,    -- when it was declared so
    revision INTEGER NOT NULL,      -- grows with each change
    PRIMARY KEY (app, name)
) WITHOUT ROWID;

-- The leader finds what is due, and what is due next, without a look at any other schedule.
CREATE INDEX arriero_schedule_due ON arriero_schedule (look_at, app, name) WHERE look_at IS NOT NULL;
-- Runs of schedules that have not ended. A run's id is APP/NAME@INSTANT.
CREATE INDEX arriero_task_open_run ON arriero_task (task_id)
 WHERE state IN ('pending', 'processing', 'compensating') AND task_id GLOB '*/*@*Z';

-- Tokens of the HTTP API. The secret in a token is kept nowhere.
CREATE TABLE arriero_token (
    token_id TEXT PRIMARY KEY NOT NULL,
    name TEXT NOT NULL,             -- signs what its holder does
    digest TEXT NOT NULL,           -- SHA-256 of the secret, hexadecimal
    scopes TEXT NOT NULL,           -- JSON array of texts
    created_at INTEGER NOT NULL,
    created_by TEXT NOT NULL,
    expires_at INTEGER,                -- null: never
    last_used_at INTEGER,              -- within a minute
    revoked_at INTEGER,
    revoked_by TEXT NOT NULL,
    revoked_reason TEXT NOT NULL,
    apps TEXT NOT NULL,             -- JSON array of texts: it is restricted to these; empty: to none
    workflows TEXT NOT NULL,        -- in the same way
    open_tasks_max INTEGER          -- tasks of it that may be open; null: any number
) WITHOUT ROWID;
