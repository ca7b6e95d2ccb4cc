-- Today's schema; a test finds it equal to the sum of the migrations. {schema} stands for the schema's name.
-- All instants are microseconds since 1970 by the store's clock; payloads are JSON text.
CREATE TABLE {schema}.meta (
    name text PRIMARY KEY,
    value text NOT NULL
);

-- Rows that change often leave room in their page for their next version: what a task does between its claim and its end
-- leaves its indexed columns alone, so it need not touch an index. They are vacuumed after so many changes, however large
-- the table has grown.
CREATE TABLE {schema}.task (
    task_no bigint PRIMARY KEY,
    task_id text NOT NULL UNIQUE,
    workflow text NOT NULL,
    state text NOT NULL,
    priority smallint NOT NULL,
    not_before bigint,              -- null: only news wakes it, or it has ended
    locked_by bigint,               -- the process that holds it; null: free
    fence bigint NOT NULL,
    revision bigint NOT NULL,
    incarnation integer NOT NULL,
    failure_count integer NOT NULL,
    lost_count integer NOT NULL,
    opened_count integer NOT NULL,
    open_count integer NOT NULL,
    result_count integer NOT NULL,
    unseen_since bigint,
    seed bigint NOT NULL,
    policy text NOT NULL,
    body_hash text NOT NULL,
    submitted_at bigint NOT NULL,
    started_at bigint,
    ended_at bigint,
    complete_by bigint,
    output text,
    failure text,
    link integer NOT NULL,
    head text NOT NULL,
    paused_at bigint,               -- since when a person keeps it from going on
    undoing boolean NOT NULL,       -- its undo has begun in this incarnation
    past_count integer NOT NULL,    -- steps up to this ordinal belong to a life undone as a whole
    branched_at bigint,             -- steps opened from here on followed a failure that is done again
    reply_to text,                  -- the submitter's reply queue
    status_count integer NOT NULL,
    convoy_no bigint,
    place bigint,                   -- in its convoy, by the order of commits
    sequence bigint,                -- the producer's own number
    rank bigint,                    -- by which those that wait are taken
    turn text,                      -- waiting, open, ended, set_aside; null: in no convoy
    due_at bigint,                  -- of one whose turn has not come: it does not start before
    ledger_no bigint,               -- of the ledger that has not let it go yet
    app text NOT NULL DEFAULT '',   -- the App that runs it; empty: not said
    trace_context text,             -- of who submitted it: traceparent, a space and tracestate, as W3C Trace Context has them
    from_ledger bigint,             -- of the ledger that it came with; it stays
    submitter text                  -- the token that submitted it, if its open tasks are capped; it stays
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.0, autovacuum_vacuum_threshold = 10000,
        autovacuum_vacuum_cost_delay = 0, autovacuum_analyze_scale_factor = 0.02);
CREATE SEQUENCE {schema}.task_number AS bigint OWNED BY {schema}.task.task_no;

-- Claiming: what is free and due, by priority and time. Ended tasks have no not_before and leave it.
CREATE INDEX task_claimable ON {schema}.task (priority, not_before, task_no)
 WHERE locked_by IS NULL AND not_before IS NOT NULL AND paused_at IS NULL;
-- Asking when something is due: a process must not read through the backlog of workflows whose code it does not have.
CREATE INDEX task_due ON {schema}.task (workflow, app, not_before)
 WHERE locked_by IS NULL AND not_before IS NOT NULL AND paused_at IS NULL AND state <> 'compensating';
CREATE INDEX task_undo_due ON {schema}.task (app, not_before)
 WHERE locked_by IS NULL AND not_before IS NOT NULL AND paused_at IS NULL AND state = 'compensating';
-- Claiming by shares: the backlog of one workflow must not be read for the share of another one.
CREATE INDEX task_share ON {schema}.task (workflow, app, priority, not_before, task_no)
 WHERE locked_by IS NULL AND not_before IS NOT NULL AND paused_at IS NULL AND state <> 'compensating';
CREATE INDEX task_held ON {schema}.task (locked_by, task_no) WHERE locked_by IS NOT NULL;
CREATE INDEX task_limit ON {schema}.task (complete_by)
 WHERE complete_by IS NOT NULL AND state IN ('pending', 'processing');
CREATE INDEX task_unseen ON {schema}.task (locked_by, unseen_since)
 WHERE unseen_since IS NOT NULL AND locked_by IS NOT NULL;
CREATE INDEX task_error ON {schema}.task (task_no) WHERE state = 'error';
-- Runs of schedules that have not ended. A run's id is APP/NAME@INSTANT; another collation would order it otherwise.
CREATE INDEX task_open_run ON {schema}.task (task_id COLLATE "C")
 WHERE state IN ('pending', 'processing', 'compensating') AND strpos(task_id, '@') > 0 AND right(task_id, 1) = 'Z';
CREATE INDEX task_paused ON {schema}.task (task_no) WHERE paused_at IS NOT NULL;
CREATE INDEX task_waiting ON {schema}.task (convoy_no, rank, place) WHERE turn = 'waiting';
CREATE INDEX task_set_aside ON {schema}.task (convoy_no, place) WHERE turn = 'set_aside';
CREATE INDEX task_of_ledger ON {schema}.task (ledger_no, task_no) WHERE ledger_no IS NOT NULL;
CREATE INDEX task_from_ledger ON {schema}.task (from_ledger, task_no) WHERE from_ledger IS NOT NULL;
CREATE INDEX task_from_ledger_open ON {schema}.task (from_ledger, task_no)
 WHERE from_ledger IS NOT NULL AND state NOT IN ('processed', 'compensated', 'error');
CREATE INDEX task_submitter_open ON {schema}.task (submitter)
 WHERE submitter IS NOT NULL AND state NOT IN ('processed', 'compensated', 'error');
CREATE UNIQUE INDEX task_sequence ON {schema}.task (convoy_no, sequence) WHERE sequence IS NOT NULL;

-- Apart from the task's row, which changes often: these do not.
CREATE TABLE {schema}.body (
    task_no bigint PRIMARY KEY,
    arguments text NOT NULL,
    asked text                      -- what was submitted, where a person edited it
);

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

CREATE TABLE {schema}.step (
    step_no bigint PRIMARY KEY,     -- task_no and ordinal in one number, so that a task's steps lie side by side
    task_no bigint NOT NULL,
    ordinal integer NOT NULL,
    kind text NOT NULL,
    name text NOT NULL,
    key text NOT NULL,
    agent text NOT NULL,
    state text NOT NULL,
    priority smallint NOT NULL,
    arguments text NOT NULL,
    policy text NOT NULL,
    idempotency_key text NOT NULL,
    pivot boolean NOT NULL,
    effect_free boolean NOT NULL,
    compensation text,
    undoes bigint,
    undo text,
    attempt integer NOT NULL,
    failure_count integer NOT NULL,
    lost_count integer NOT NULL,
    taken boolean NOT NULL,
    in_doubt boolean NOT NULL,
    fence bigint NOT NULL,
    locked_by bigint,
    not_before bigint,
    complete_by bigint,             -- set while an attempt runs
    wait_by bigint,                 -- set while a request waits for its first attempt under wait_within
    result text,
    failure text,
    result_number integer,
    delivered_at bigint,
    opened_at bigint NOT NULL,
    finished_at bigint,
    asked text,                     -- what the code asks with, where a person had other arguments sent
    app text NOT NULL DEFAULT '',   -- as of its task
    target text NOT NULL DEFAULT '', -- the part of its Agent's service that it calls
    canary bigint,                  -- the fence of the breaker that lets this attempt through; 0: it failed in an outage
    charged_at text,               -- JSON array: when its last counted failures were
    checkpoint text,                -- what an attempt kept for those after it, as JSON text
    limit_keys text COLLATE "C",    -- JSON object: what its Agent's limits count it under; null: there were none
    routing text NOT NULL DEFAULT '' -- whether it may go to other Agents: pinned, interchangeable; empty: there are none
) WITH (autovacuum_vacuum_scale_factor = 0.0, autovacuum_vacuum_threshold = 20000,
        autovacuum_vacuum_cost_delay = 0, autovacuum_analyze_scale_factor = 0.02);

CREATE INDEX step_takeable ON {schema}.step (agent, app, priority, not_before, step_no)
 WHERE state = 'pending' AND kind <> 'timer' AND not_before IS NOT NULL;
CREATE INDEX step_running ON {schema}.step (complete_by) WHERE complete_by IS NOT NULL;
CREATE INDEX step_held ON {schema}.step (locked_by, task_no) WHERE locked_by IS NOT NULL;
CREATE INDEX step_starving ON {schema}.step (wait_by) WHERE wait_by IS NOT NULL;
CREATE INDEX step_waiting_keys ON {schema}.step (agent, app, limit_keys, priority, not_before, step_no)
 WHERE state = 'pending' AND limit_keys IS NOT NULL;
CREATE INDEX step_running_keys ON {schema}.step (agent, app, limit_keys)
 WHERE state = 'running' AND limit_keys IS NOT NULL;

-- Numbers are given under the locks of what a commit changes: what depends on another commit has the greater one.
CREATE TABLE {schema}.history (
    no bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    task_no bigint NOT NULL,        -- 0: of the store itself
    link integer NOT NULL,
    at bigint NOT NULL,
    actor text NOT NULL,
    events text NOT NULL,
    hash text NOT NULL
);
CREATE UNIQUE INDEX history_of_task ON {schema}.history (task_no, link);
CREATE TABLE {schema}.store_head (
    one boolean PRIMARY KEY DEFAULT true CHECK (one),
    link integer NOT NULL,
    head text NOT NULL
);
INSERT INTO {schema}.store_head (link, head) VALUES (0, '');

CREATE TABLE {schema}.process (
    process_no bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    instance text NOT NULL UNIQUE,
    lease_until bigint NOT NULL,
    renewed_at bigint,              -- null: it has not renewed yet
    retired boolean NOT NULL,
    about text NOT NULL,            -- what it runs, as JSON text
    room text NOT NULL DEFAULT ''   -- of its Agents at its last renewal, as JSON text
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.0, autovacuum_vacuum_threshold = 500);
CREATE INDEX process_renewed ON {schema}.process (renewed_at);
CREATE INDEX process_alive ON {schema}.process (process_no) WHERE NOT retired;

-- The number of the last batch that a process committed: what became of one whose answer was lost is read here.
CREATE TABLE {schema}.writer (
    process_no bigint PRIMARY KEY,
    epoch integer,                  -- null: it was of an epoch that is over
    batch_no bigint NOT NULL
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.0, autovacuum_vacuum_threshold = 500);

CREATE TABLE {schema}.lease (
    name text PRIMARY KEY,
    term bigint NOT NULL,
    holder bigint,
    until bigint NOT NULL,
    owner text NOT NULL DEFAULT '',          -- who holds it, where it is no process
    duration bigint NOT NULL DEFAULT 0,   -- microseconds
    since bigint NOT NULL DEFAULT 0,
    broken_by text NOT NULL DEFAULT '',      -- a person took it from its holder
    broken_reason text NOT NULL DEFAULT ''
) WITH (fillfactor = 50);

-- Messages to submitters: kept until their reader acknowledges them. No number is given twice: an old one must not
-- acknowledge a new message.
CREATE TABLE {schema}.status (
    no bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    queue text NOT NULL,
    task_no bigint NOT NULL,        -- 0: a gap mark
    number integer NOT NULL,        -- of the task's statuses: 1, 2, ...
    incarnation integer NOT NULL,
    kind text NOT NULL,
    at bigint NOT NULL,
    data text NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0.0, autovacuum_vacuum_threshold = 10000);
CREATE INDEX status_of_queue ON {schema}.status (queue, (kind <> 'dropped'), no);
CREATE INDEX status_of_task ON {schema}.status (task_no);
CREATE INDEX status_old ON {schema}.status (at);

-- Tasks that need a person: opened when a task goes into error, closed when it leaves it.
CREATE TABLE {schema}.alert (
    no bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    task_no bigint NOT NULL,
    incarnation integer NOT NULL,
    cause text NOT NULL,
    reason text NOT NULL,
    step text NOT NULL,
    code text NOT NULL,
    opened_at bigint NOT NULL,
    closed_at bigint,
    told text NOT NULL,             -- JSON array: sinks that know its present state
    attempts integer NOT NULL,
    next_at bigint,                 -- when to tell it (again); null: every sink knows
    error text NOT NULL,
    trace text                      -- JSON array: where in the code the failure was
);
CREATE INDEX alert_of_task ON {schema}.alert (task_no);
CREATE INDEX alert_due ON {schema}.alert (next_at) WHERE next_at IS NOT NULL;
CREATE INDEX alert_open ON {schema}.alert (no) WHERE closed_at IS NULL;
-- Of a row that a release cannot read a person is told once, whoever finds it.
CREATE UNIQUE INDEX alert_unreadable ON {schema}.alert (task_no, step) WHERE cause = 'unreadable' AND closed_at IS NULL;

-- What a key is doing: whose turn it is. Keys stay when their tasks have ended.
CREATE TABLE {schema}.convoy (
    convoy_no bigint PRIMARY KEY,
    key text NOT NULL,
    ordering text NOT NULL,
    state text NOT NULL DEFAULT 'idle',
    open_task bigint,               -- whose turn it is
    fence bigint NOT NULL DEFAULT 0,
    number bigint NOT NULL DEFAULT 0, -- of its last event
    from_rank bigint NOT NULL DEFAULT 1, -- nothing that waits stands before it
    reached bigint NOT NULL DEFAULT 0, -- the highest rank whose turn has come
    expected bigint NOT NULL DEFAULT 1, -- the next number of the producer's sequence
    gap_since bigint,
    alerted_task bigint,            -- the task whose alert tells a person of the gap
    look_at bigint,                 -- when it is to be decided anew whose turn it is
    parked_at bigint,
    parked_why text NOT NULL DEFAULT '',
    on_head text,                   -- its own policy; null: the workflows'
    on_gap text,
    gap_within double precision,
    value text,                     -- the state of the key, as JSON text
    created_at bigint NOT NULL,
    link integer NOT NULL DEFAULT 0, -- of its own stream in the history
    head text NOT NULL DEFAULT '',
    trace_link text                 -- to the span of the last task that ended in its turn: trace and span, in hexadecimal
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.0, autovacuum_vacuum_threshold = 5000,
        autovacuum_vacuum_cost_delay = 0);
CREATE INDEX convoy_due ON {schema}.convoy (look_at) WHERE look_at IS NOT NULL;
CREATE INDEX convoy_still ON {schema}.convoy (convoy_no) WHERE state IN ('stopped', 'gap') OR parked_at IS NOT NULL;

-- Where new tasks are placed. Its row is the submitter's until the commit; so places are in the order of commits.
CREATE TABLE {schema}.convoy_tail (
    convoy_no bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    key text NOT NULL UNIQUE,
    ordering text NOT NULL,
    placed bigint NOT NULL DEFAULT 0, -- the last place
    last_rank bigint NOT NULL DEFAULT 0, -- the greatest place or sequence
    end_rank bigint,                -- the producer's end mark
    asks boolean NOT NULL DEFAULT true -- nothing can be opened as things stand
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.0, autovacuum_vacuum_threshold = 5000,
        autovacuum_vacuum_cost_delay = 0);

-- Messages with operations on many keys: their tasks are there for nobody before opened_at. No number is given twice.
CREATE TABLE {schema}.ledger (
    ledger_no bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    ledger_id text NOT NULL UNIQUE,
    state text NOT NULL DEFAULT 'writing', -- writing, discarding, opened, done
    digest text NOT NULL DEFAULT '', -- over the entries written so far
    written bigint NOT NULL DEFAULT 0, -- entries
    accepted bigint NOT NULL DEFAULT 0, -- of them new tasks
    duplicates bigint NOT NULL DEFAULT 0,
    aside bigint NOT NULL DEFAULT 0, -- entries set aside
    let_go bigint NOT NULL DEFAULT 0, -- tasks let go
    reached bigint NOT NULL DEFAULT 0, -- task_no of the last one let go, or removed
    created_at bigint NOT NULL,
    written_at bigint NOT NULL,
    opened_at bigint,
    linked bigint NOT NULL DEFAULT 0 -- of the accepted tasks: those whose rows keep its number
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.0, autovacuum_vacuum_threshold = 500);
CREATE INDEX ledger_unfinished ON {schema}.ledger (ledger_no) WHERE state <> 'done';

-- Entries of a ledger that became no tasks, and why.
CREATE TABLE {schema}.ledger_aside (
    ledger_no bigint NOT NULL,
    line bigint NOT NULL,
    reason text NOT NULL,
    PRIMARY KEY (ledger_no, line)
);

-- What workflows are called and how they are supervised, as processes that have their code said last: {schema}.submit
-- takes it from here.
CREATE TABLE {schema}.workflow (
    name text PRIMARY KEY,
    policy text NOT NULL,
    complete_within double precision
);

-- The same for each App that has a workflow of the name, so that {schema}.submit can tell whose a task is.
CREATE TABLE {schema}.app_workflow (
    name text NOT NULL,
    app text NOT NULL,
    policy text NOT NULL,
    complete_within double precision,
    PRIMARY KEY (name, app)
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

CREATE TABLE {schema}.migration (
    number integer PRIMARY KEY,
    name text NOT NULL,
    applied_at bigint NOT NULL
);

-- now_at: the store's clock. It is the server's, and never before what a process has seen: where that goes back, because it
-- was set or another server took over, an offset lets the store's go on. given: the clock of a test.
INSERT INTO {schema}.meta (name, value) VALUES ('clock_offset', '0');
CREATE FUNCTION {schema}.now_at(given bigint) RETURNS bigint LANGUAGE sql VOLATILE
SET search_path = pg_catalog, pg_temp AS $$
    SELECT coalesce(given, greatest((extract(epoch FROM clock_timestamp()) * 1000000)::bigint
                                    + (SELECT value::bigint FROM {schema}.meta WHERE name = 'clock_offset'),
                                    (SELECT max(renewed_at) FROM {schema}.process)))
$$;

-- keep_task: a new task in the transaction of whoever calls. Nothing is kept if the same id is there already.
-- It does what core.transitions.new_task and core.placing do; a test compares.
-- wanted_store: the id of the store that is meant; null: whichever this is. submission: the fields of commands.Submit, and
-- given (the clock of a test, else null).
-- verdict: created; same: the task was there, with known_id if it came under another id with the same sequence; workflow,
-- App, body, convoy, sequence, end mark: it was there, and this is what differs (as core.known says); used: another task has its sequence (known_id); refused: it
-- cannot stand in its convoy, whose end is tail; ledger: a ledger that is not opened keeps its id or sequence; store: another.
CREATE FUNCTION {schema}.keep_task(
    wanted_store text, submission json, OUT task_no bigint, OUT verdict text, OUT known_id text, OUT tail json)
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_variable
DECLARE
    asked record;
    known record;
    same_no bigint;                 -- of the task that has its sequence
    same_verdict text;
    judged record;
    ends {schema}.convoy_tail;
    key {schema}.convoy;
    at bigint;
    due bigint;
    due_by bigint;
    events text;
    first_head text;
    new_place bigint;
    new_rank bigint;
    turn text;
    is_refused boolean := false;
    touches_key boolean := false;
    may_wait_for_ever CONSTANT boolean := current_setting('lock_timeout') = '0';
    control CONSTANT text := '[\u0001-\u001f\u007f-\u009f]';
BEGIN
    IF wanted_store IS NOT NULL
       AND wanted_store IS DISTINCT FROM (SELECT m.value FROM {schema}.meta AS m WHERE m.name = 'store_id') THEN
        verdict := 'store';
        RETURN;
    END IF;
    -- Raised, never lowered: the commit is to be as safe as every other of the store, and to say so if it is not.
    PERFORM set_config('synchronous_commit', 'on', true)
      WHERE current_setting('synchronous_commit') IN ('off', 'local', 'remote_write');
    PERFORM set_config('client_min_messages', 'warning', true) WHERE current_setting('client_min_messages') = 'error';
    IF may_wait_for_ever THEN
        PERFORM set_config('lock_timeout', '10s', true);
    END IF;
    SELECT * INTO asked FROM json_to_record(submission) AS fields(
        task_id text, workflow text, arguments text, body_hash text, policy text, priority smallint, delay double precision,
        complete_within double precision, seed bigint, reply_to text, actor text, given bigint,
        convoy text, sequence bigint, end_of_sequence boolean, app text, trace_context text);
    asked.app := coalesce(asked.app, ''); -- release 0.4.0 says none
    IF octet_length(asked.arguments) > 1000000 THEN
        RAISE EXCEPTION 'arguments have % bytes; the limit is 1000000', octet_length(asked.arguments)
            USING ERRCODE = 'invalid_parameter_value', HINT = 'keep large data elsewhere and pass its address';
    ELSIF octet_length(asked.policy) > 4000 OR octet_length(asked.trace_context) > 1000 OR octet_length(asked.body_hash) > 255 THEN
        RAISE EXCEPTION 'policy, trace_context or body_hash is too long: the limits are 4000, 1000 and 255 bytes'
            USING ERRCODE = 'invalid_parameter_value', HINT = 'take what arriero itself sends';
    ELSIF NOT asked.complete_within BETWEEN 0 AND 3162240000 OR NOT asked.seed BETWEEN 0 AND 4611686018427387903
          OR NOT asked.sequence BETWEEN 1 AND 9007199254740992 THEN
        RAISE EXCEPTION 'complete_within is %, seed % and sequence %', asked.complete_within, asked.seed, asked.sequence
            USING ERRCODE = 'invalid_parameter_value',
            HINT = 'use 0 s to a century, a seed from 0 to 2^62 - 1, and a sequence from 1 to 9007199254740992';
    ELSIF coalesce(length(asked.workflow), 0) NOT BETWEEN 1 AND 255 OR asked.workflow ~ control
          OR length(asked.app) > 255 OR asked.app ~ control THEN
        RAISE EXCEPTION 'workflow and app have 1 to 255 characters without control characters'
            USING ERRCODE = 'invalid_parameter_value', HINT = 'use the names that the code declares';
    END IF;
    -- Who may only submit is trusted with nothing that others' rows, the clock or the history hang on.
    IF NOT has_table_privilege(session_user, '{schema}.task', 'INSERT') THEN
        IF asked.given IS NOT NULL THEN
            RAISE EXCEPTION 'given is for tests' USING ERRCODE = 'insufficient_privilege', HINT = 'leave it out';
        END IF;
        asked.actor := 'sql';
        SELECT * INTO judged FROM {schema}.judged_body(asked.arguments, false);
        IF judged.refusal IS NOT NULL OR judged.body IS NULL OR judged.body NOT LIKE '{%' THEN
            RAISE EXCEPTION '%', coalesce(judged.refusal, 'arguments are no JSON object')
                USING ERRCODE = 'invalid_parameter_value', HINT = coalesce(judged.hint, 'name each parameter of the workflow');
        END IF;
    END IF;
    IF coalesce(length(asked.task_id), 0) NOT BETWEEN 1 AND 255 OR asked.task_id ~ control
       OR length(asked.reply_to) NOT BETWEEN 1 AND 255 OR asked.reply_to ~ control
       OR length(asked.convoy) NOT BETWEEN 1 AND 255 OR asked.convoy ~ control THEN
        RAISE EXCEPTION 'task_id, convoy and reply_to have 1 to 255 characters without control characters'
            USING ERRCODE = 'invalid_parameter_value', HINT = 'use shorter texts, such as the key of your own row';
    ELSIF asked.convoy LIKE 'schedule %/%' AND asked.actor <> 'schedule' THEN
        RAISE EXCEPTION 'convoy % is kept for the runs of a schedule', quote_literal(asked.convoy)
            USING ERRCODE = 'invalid_parameter_value', HINT = 'choose another key';
    ELSIF coalesce(asked.priority, -1) NOT BETWEEN 0 AND 9 OR NOT coalesce(asked.delay BETWEEN 0 AND 3162240000, false) THEN
        RAISE EXCEPTION 'priority is % and delay %', asked.priority, asked.delay
            USING ERRCODE = 'invalid_parameter_value', HINT = 'use a priority from 0 to 9, and a delay of 0 s to a century';
    END IF;
    task_no := nextval('{schema}.task_number');
    IF asked.convoy IS NOT NULL THEN
        -- Ours until the commit: places are given in its order. Then the clock is read.
        -- A known id makes no key: it is refused, or its convoy is there.
        PERFORM {schema}.add_convoys(ARRAY[asked.convoy],
                                     ARRAY[CASE WHEN asked.sequence IS NULL THEN 'place' ELSE 'sequence' END], asked.given)
          WHERE NOT EXISTS (SELECT 1 FROM {schema}.task AS t WHERE t.task_id = asked.task_id);
        SELECT t.* INTO ends FROM {schema}.convoy_tail AS t WHERE t.key = asked.convoy FOR NO KEY UPDATE;
        tail := row_to_json(ends);
        new_place := ends.placed + 1;
        new_rank := coalesce(asked.sequence, new_place);
        is_refused := (ends.placed > 0 AND (ends.ordering = 'sequence') <> (asked.sequence IS NOT NULL))
            OR coalesce(ends.end_rank < new_rank OR (ends.end_rank IS NOT NULL AND asked.end_of_sequence), false)
            OR (coalesce(asked.end_of_sequence, false) AND new_rank < ends.last_rank);
        SELECT c.* INTO key FROM {schema}.convoy AS c WHERE c.convoy_no = ends.convoy_no;
        touches_key := NOT is_refused AND (ends.asks OR asked.sequence < key.expected);
        IF touches_key THEN
            SELECT c.* INTO key FROM {schema}.convoy AS c WHERE c.convoy_no = ends.convoy_no FOR NO KEY UPDATE;
        END IF;
        IF asked.sequence IS NOT NULL AND ends.ordering = 'sequence' THEN
            SELECT t.task_no, t.task_id,
                   CASE WHEN {schema}.is_kept(t.ledger_no) THEN 'ledger'
                        WHEN t.workflow = asked.workflow AND {schema}.is_another_app(t.app, asked.app) THEN 'App'
                        ELSE {schema}.what_differs(t.workflow, t.body_hash, coalesce(b.asked, b.arguments),
                                                   asked.workflow, asked.body_hash, asked.arguments) END
              INTO same_no, known_id, same_verdict
              FROM {schema}.task AS t LEFT JOIN {schema}.body AS b ON b.task_no = t.task_no
             WHERE t.convoy_no = ends.convoy_no AND t.sequence = asked.sequence;
        END IF;
        turn := 'waiting';
        IF touches_key AND ends.asks AND asked.sequence IS NULL AND key.state = 'idle' AND key.parked_at IS NULL
           AND key.look_at IS NULL THEN
            turn := 'open';
        END IF;
    END IF;
    at := {schema}.now_at(asked.given);
    due := at + round(asked.delay * 1000000)::bigint;
    due_by := due + round(asked.complete_within * 1000000)::bigint;
    events := '[{"type":"task.submitted","workflow":' || to_json(asked.workflow) || ',"body":' || to_json(asked.body_hash)
        || ',"priority":' || asked.priority || ',"not_before":' || due
        || ',"complete_by":' || coalesce(due_by::text, 'null')
        || coalesce(',"reply_to":' || to_json(asked.reply_to), '')
        || coalesce(',"app":' || to_json(nullif(asked.app, '')), '') || '}'
        || coalesce(',{"type":"convoy.placed","convoy":' || ends.convoy_no || ',"key":' || to_json(asked.convoy)
                    || ',"place":' || new_place || ',"rank":' || new_rank
                    || coalesce(',"sequence":' || asked.sequence, '')
                    || CASE WHEN asked.end_of_sequence THEN ',"end":true' ELSE '' END || '}', '')
        || CASE WHEN turn = 'open' THEN
               ',{"type":"convoy.opened","convoy":' || ends.convoy_no || ',"number":' || key.number + 1
               || ',"fence":' || key.fence + 1 || ',"rank":' || new_rank || ',"not_before":' || due || '}' ELSE '' END
        || coalesce(',{"type":"status.published","number":1,"kind":"received","queue":' || to_json(asked.reply_to) || '}', '')
        || ']';
    first_head := encode(
        sha256(convert_to('|' || task_no || '|1|' || at || '|' || asked.actor || '|' || events, 'UTF8')), 'hex');
    LOOP
        IF NOT is_refused AND same_no IS NULL AND (asked.convoy IS NULL OR ends.convoy_no IS NOT NULL) THEN
            INSERT INTO {schema}.task AS t (
                task_no, task_id, workflow, state, priority, not_before, fence, revision, incarnation, failure_count,
                lost_count, opened_count, open_count, result_count, seed, policy, body_hash, submitted_at, complete_by, link,
                head, undoing, past_count, reply_to, status_count,
                convoy_no, place, sequence, rank, turn, due_at, app, trace_context)
            VALUES (task_no, asked.task_id, asked.workflow, 'pending', asked.priority,
                    CASE WHEN turn = 'waiting' THEN NULL ELSE due END, 0, 0, 1, 0,
                    0, 0, 0, 0, asked.seed, asked.policy, asked.body_hash, at, due_by, 1,
                    first_head, false, 0, asked.reply_to, CASE WHEN asked.reply_to IS NULL THEN 0 ELSE 1 END,
                    ends.convoy_no, new_place, asked.sequence, new_rank, turn,
                    CASE WHEN turn = 'waiting' AND due > at THEN due END, asked.app, asked.trace_context)
            ON CONFLICT ON CONSTRAINT task_task_id_key DO NOTHING;
            IF FOUND THEN
                INSERT INTO {schema}.body (task_no, arguments) VALUES (task_no, asked.arguments);
                INSERT INTO {schema}.history (task_no, link, at, actor, events, hash)
                VALUES (task_no, 1, at, asked.actor, events, first_head);
                INSERT INTO {schema}.status (queue, task_no, number, incarnation, kind, at, data)
                SELECT asked.reply_to, task_no, 1, 1, 'received', at, '{}' WHERE asked.reply_to IS NOT NULL;
                UPDATE {schema}.convoy_tail AS t
                   SET ordering = CASE WHEN asked.sequence IS NULL THEN 'place' ELSE 'sequence' END,
                       placed = new_place,
                       last_rank = greatest(t.last_rank, new_rank),
                       end_rank = CASE WHEN asked.end_of_sequence THEN new_rank ELSE t.end_rank END,
                       asks = false
                 WHERE t.convoy_no = ends.convoy_no;
                IF touches_key THEN
                    UPDATE {schema}.convoy AS c
                       SET ordering = CASE WHEN asked.sequence IS NULL THEN 'place' ELSE 'sequence' END,
                           state = CASE WHEN turn = 'open' THEN 'open' ELSE c.state END,
                           open_task = CASE WHEN turn = 'open' THEN keep_task.task_no ELSE c.open_task END,
                           fence = c.fence + CASE WHEN turn = 'open' THEN 1 ELSE 0 END,
                           number = c.number + CASE WHEN turn = 'open' THEN 1 ELSE 0 END,
                           from_rank = CASE WHEN turn = 'open' THEN new_rank ELSE least(c.from_rank, new_rank) END,
                           reached = CASE WHEN turn = 'open' THEN greatest(c.reached, new_rank) ELSE c.reached END,
                           gap_since = CASE WHEN turn = 'open' THEN NULL ELSE c.gap_since END,
                           look_at = CASE WHEN turn = 'open' THEN NULL ELSE at END
                     WHERE c.convoy_no = ends.convoy_no;
                END IF;
                PERFORM pg_notify('{channel}', '');
                verdict := 'created';
                EXIT;
            END IF;
        END IF;
        -- Locked, so that the caller's commit confirms what another's lost answer may have left unconfirmed.
        SELECT t.task_no, t.workflow, t.body_hash, t.convoy_no, t.sequence, t.place, t.ledger_no, t.app,
               coalesce(b.asked, b.arguments) AS arguments
          INTO known
          FROM {schema}.task AS t LEFT JOIN {schema}.body AS b ON b.task_no = t.task_no
         WHERE t.task_id = asked.task_id FOR NO KEY UPDATE OF t;
        IF FOUND THEN
            task_no := known.task_no;
            known_id := NULL;
            verdict := {schema}.what_differs(known.workflow, known.body_hash, known.arguments,
                                             asked.workflow, asked.body_hash, asked.arguments);
            IF {schema}.is_kept(known.ledger_no) THEN
                verdict := 'ledger';
            ELSIF verdict <> 'workflow' AND {schema}.is_another_app(known.app, asked.app) THEN
                verdict := 'App';
            ELSIF verdict = 'same' AND (known.convoy_no IS DISTINCT FROM ends.convoy_no
                                        OR (asked.convoy IS NOT NULL AND ends.convoy_no IS NULL)) THEN
                verdict := 'convoy';
            ELSIF verdict = 'same' AND known.sequence IS DISTINCT FROM asked.sequence THEN
                verdict := 'sequence';
            ELSIF verdict = 'same' AND asked.end_of_sequence
                  AND ends.end_rank IS DISTINCT FROM coalesce(known.sequence, known.place) THEN
                verdict := 'end mark';
            END IF;
            EXIT;
        ELSIF same_no IS NOT NULL THEN
            task_no := same_no;
            verdict := CASE WHEN same_verdict = 'ledger' THEN 'ledger'
                            WHEN same_verdict <> 'same' THEN 'used'
                            WHEN asked.end_of_sequence AND ends.end_rank IS DISTINCT FROM asked.sequence THEN 'end mark'
                            ELSE 'same' END;
            EXIT;
        ELSIF is_refused THEN
            verdict := 'refused';
            EXIT;
        ELSIF asked.convoy IS NOT NULL AND ends.convoy_no IS NULL THEN
            -- Its id was known, or its key was there, and was purged just now.
            RAISE EXCEPTION 'convoy % was purged just now', quote_literal(asked.convoy)
                USING ERRCODE = 'serialization_failure', HINT = 'run the transaction again';
        END IF;
        -- It was purged in between.
    END LOOP;
    IF may_wait_for_ever THEN
        PERFORM set_config('lock_timeout', '0', true);
    END IF;
END
$$;

-- is_kept: whether a task of that ledger is there for nobody yet.
CREATE FUNCTION {schema}.is_kept(number bigint) RETURNS boolean LANGUAGE sql STABLE
SET search_path = pg_catalog, pg_temp AS $$
    SELECT number IS NOT NULL
       AND NOT EXISTS (SELECT 1 FROM {schema}.ledger AS l WHERE l.ledger_no = number AND l.opened_at IS NOT NULL)
$$;

-- is_same_body: whether two JSON texts mean the same to Python. The same rule as in core.bodies; a test compares.
CREATE FUNCTION {schema}.is_same_body(one text, other text) RETURNS boolean LANGUAGE plpgsql IMMUTABLE
SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RETURN one = other OR coalesce(({schema}.judged_body(one, true)).body = ({schema}.judged_body(other, true)).body, false);
END
$$;

-- judged_body: a JSON text as Python would record it: fields in order, no spaces, numbers in Python's spelling.
-- is_folded: in the one form of all that mean the same: besides, a whole number below 2^53 is never written as a float.
-- refusal: why Python would not take it, or why that cannot be told here; hint: the remedy. Then body is null.
CREATE FUNCTION {schema}.judged_body(given text, is_folded boolean, OUT body text, OUT refusal text, OUT hint text)
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp SET extra_float_digits = '1' AS $$
#variable_conflict use_variable
DECLARE
    depth_max CONSTANT integer := 100;
    bytes_max CONSTANT integer := 1000000;
    given_bytes_max CONSTANT integer := 4000000; -- spaces and escapes are not counted in the end
    brackets text;
    depth bigint;
    doubled text;
    detail text;
BEGIN
    IF octet_length(given) > given_bytes_max THEN
        refusal := format('arguments have %s bytes; the limit is %s', octet_length(given), bytes_max);
        hint := 'keep large data elsewhere and pass its address';
        RETURN;
    END IF;
    -- Before anything reads it as JSON: every reader goes down into it.
    brackets := regexp_replace(regexp_replace(given, '"(?:[^"\\]|\\.)*"', '', 'g'), '[^][{}]', '', 'g');
    IF length(brackets) > depth_max THEN
        SELECT max(b.depth) INTO depth
          FROM (SELECT sum(CASE WHEN each.one IN ('[', '{') THEN 1 ELSE -1 END) OVER (ORDER BY each.nth) AS depth
                  FROM string_to_table(brackets, NULL) WITH ORDINALITY AS each(one, nth)) AS b;
        IF depth > depth_max THEN
            refusal := format('arguments are nested more than %s levels deep', depth_max);
            hint := 'flatten them, or keep them elsewhere and pass their address';
            RETURN;
        END IF;
    END IF;
    WITH RECURSIVE node(path, key, value) AS (
        SELECT ARRAY[]::text[], NULL::text, given::json
        UNION ALL
        SELECT above.path || below.place, below.key, below.value
          FROM node AS above CROSS JOIN LATERAL (
            SELECT '0' || field.key, field.key, field.value
              FROM json_each(CASE json_typeof(above.value) WHEN 'object' THEN above.value ELSE '{}' END) AS field
            UNION ALL
            SELECT '0' || lpad(item.nth::text, 7, '0'), NULL, item.value
              FROM json_array_elements(CASE json_typeof(above.value) WHEN 'array' THEN above.value ELSE '[]' END)
                   WITH ORDINALITY AS item(value, nth)) AS below(place, key, value)
    ), twice AS (
        SELECT n.key FROM node AS n WHERE n.key IS NOT NULL GROUP BY n.path, n.key HAVING count(*) > 1 LIMIT 1
    ), piece(path, is_node, text) AS (
        SELECT n.path, cardinality(n.path) > 0, coalesce(to_json(n.key)::text || ':', '') || CASE json_typeof(n.value)
                   WHEN 'object' THEN '{'
                   WHEN 'array' THEN '['
                   WHEN 'string' THEN to_json(n.value #>> '{}')::text
                   WHEN 'number' THEN {schema}.number_in_python(n.value::text, is_folded)
                   ELSE n.value::text END
          FROM node AS n
        UNION ALL
        SELECT n.path || '1'::text, false, CASE json_typeof(n.value) WHEN 'object' THEN '}' ELSE ']' END
          FROM node AS n WHERE json_typeof(n.value) IN ('object', 'array')
    ), placed AS (
        SELECT p.path, p.text, p.is_node AND lag(cardinality(p.path)) OVER (ORDER BY p.path COLLATE "C")
                   >= cardinality(p.path) AS follows
          FROM piece AS p
    )
    SELECT string_agg(CASE WHEN p.follows THEN ',' ELSE '' END || p.text, '' ORDER BY p.path COLLATE "C"),
           (SELECT t.key FROM twice AS t)
      INTO body, doubled
      FROM placed AS p;
    IF doubled IS NOT NULL THEN
        body := NULL;
        refusal := format('arguments have the key %L twice in one object', doubled);
        hint := 'leave one of them out';
    ELSIF octet_length(body) > bytes_max THEN
        refusal := format('arguments have %s bytes; the limit is %s', octet_length(body), bytes_max);
        body := NULL;
        hint := 'keep large data elsewhere and pass its address';
    END IF;
EXCEPTION
    WHEN numeric_value_out_of_range THEN
        body := NULL;
        refusal := 'arguments hold a number that cannot be told exactly: ' || SQLERRM;
        hint := 'use a float from 5e-324 to 1.7e308, a whole number of up to 4299 digits, or a text';
    WHEN invalid_text_representation OR untranslatable_character OR statement_too_complex THEN
        GET STACKED DIAGNOSTICS detail = PG_EXCEPTION_DETAIL;
        body := NULL;
        refusal := 'arguments are no JSON that can be recorded: ' || concat_ws(': ', SQLERRM, nullif(detail, ''));
        hint := 'mend the text; NUL characters and lone surrogates are no text, encode them as base64';
END
$$;

-- number_in_python: a number of a JSON text as Python would write it. Raises numeric_value_out_of_range.
CREATE FUNCTION {schema}.number_in_python(number text, is_folded boolean) RETURNS text LANGUAGE plpgsql IMMUTABLE
SET search_path = pg_catalog, pg_temp SET extra_float_digits = '1' AS $$
DECLARE
    value double precision;
    parts text[];
    digits text;
    point integer; -- the value is 0.DIGITS times ten to the power of it
BEGIN
    IF number !~ '[.eE]' THEN
        IF length(number) > 4300 THEN -- with its sign, as msgspec counts
            RAISE numeric_value_out_of_range USING MESSAGE = format('one has %s characters', length(number));
        END IF;
        RETURN CASE number WHEN '-0' THEN '0' ELSE number END;
    END IF;
    value := number::double precision;
    IF is_folded THEN
        RETURN CASE WHEN trunc(value) = value AND abs(value) < 9007199254740992 THEN value::bigint::text
                    ELSE 'float ' || value END;
    END IF;
    parts := regexp_match(abs(value)::text, '^(\d+)(?:\.(\d+))?(?:e([-+]\d+))?$');
    digits := parts[1] || coalesce(parts[2], '');
    point := length(parts[1]) + coalesce(parts[3]::integer, 0) - (length(digits) - length(ltrim(digits, '0')));
    digits := trim('0' FROM digits);
    RETURN CASE WHEN value::text LIKE '-%' THEN '-' ELSE '' END || CASE
        WHEN digits = '' THEN '0.0'
        WHEN point > 16 OR point < -4 THEN
            left(digits, 1) || CASE WHEN length(digits) > 1 THEN '.' || substr(digits, 2) ELSE '' END || 'e' || point - 1
        WHEN point <= 0 THEN '0.' || repeat('0', -point) || digits
        WHEN point >= length(digits) THEN digits || repeat('0', point - length(digits)) || '.0'
        ELSE left(digits, point) || '.' || substr(digits, point + 1) END;
END
$$;

-- what_differs: between a known task and a submission: same, workflow or body.
CREATE FUNCTION {schema}.what_differs(
    known_workflow text, known_hash text, known_arguments text, workflow text, body_hash text, arguments text
) RETURNS text LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT CASE
        WHEN known_workflow <> workflow THEN 'workflow'
        WHEN known_hash = body_hash THEN 'same'
        WHEN {schema}.is_same_body(known_arguments, arguments) THEN 'same'
        ELSE 'body' END
$$;

-- add_convoys: rows for keys that nobody used before, in one order for all who ask.
CREATE FUNCTION {schema}.add_convoys(keys text[], orderings text[], given bigint)
RETURNS void LANGUAGE sql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
    WITH wanted AS (
        SELECT DISTINCT ON (w.key) w.key, w.ordering FROM unnest(keys, orderings) WITH ORDINALITY AS w(key, ordering, nth)
         WHERE NOT EXISTS (SELECT 1 FROM {schema}.convoy_tail AS t WHERE t.key = w.key)
         ORDER BY w.key, w.nth
    ), added AS (
        INSERT INTO {schema}.convoy_tail (key, ordering) SELECT w.key, w.ordering FROM wanted AS w
        ON CONFLICT (key) DO NOTHING RETURNING convoy_no, key, ordering
    )
    INSERT INTO {schema}.convoy (convoy_no, key, ordering, created_at)
    SELECT a.convoy_no, a.key, a.ordering, {schema}.now_at(given) FROM added AS a
$$;

-- is_another_app: whether two submissions under one id name two Apps. The same rule as in core.apps; a test compares.
CREATE FUNCTION {schema}.is_another_app(one text, other text) RETURNS boolean LANGUAGE sql IMMUTABLE
SET search_path = pg_catalog, pg_temp AS $$
    SELECT one <> '' AND other <> '' AND one <> other
$$;

-- submit: start a task from any language, in the caller's transaction. Answers its id.
--   SELECT {schema}.submit('fulfil', '{"order": {"id": "1001", "pieces": 2}}', task_id => '1001');
-- workflow: a name that a process with its code has made known. arguments: a JSON object by the names of its parameters,
-- as text. The same id again with the same arguments changes nothing; with others it is an error, and so is whatever
-- Python refuses too.
-- convoy, sequence, end_of_sequence: as in Python. app: the App that runs it; null: the only one that has the workflow.
CREATE FUNCTION {schema}.submit(
    workflow text, arguments text, task_id text DEFAULT NULL, priority integer DEFAULT 5,
    delay_seconds double precision DEFAULT 0, reply_to text DEFAULT NULL,
    convoy text DEFAULT NULL, sequence bigint DEFAULT NULL, end_of_sequence boolean DEFAULT false, app text DEFAULT NULL
) RETURNS text LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_variable
DECLARE
    known {schema}.workflow;
    whose {schema}.app_workflow;
    apps text[];
    judged record;
    kept record;
    id text := coalesce(task_id, gen_random_uuid()::text);
    control CONSTANT text := '[\u0001-\u001f\u007f-\u009f]';
    refusal CONSTANT text := 'invalid_parameter_value';
BEGIN
    SELECT * INTO judged FROM {schema}.judged_body(arguments, false);
    SELECT w.* INTO known FROM {schema}.workflow AS w WHERE w.name = workflow;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'workflow % is not known', quote_nullable(workflow) USING ERRCODE = refusal,
            HINT = 'look at the name, or start a process with its code once (arriero run MODULE:APP); known are '
                || coalesce((SELECT string_agg(w.name, ', ' ORDER BY w.name) FROM {schema}.workflow AS w), 'none');
    END IF;
    SELECT array_agg(a.app ORDER BY a.app) INTO apps FROM {schema}.app_workflow AS a WHERE a.name = workflow;
    SELECT a.* INTO whose FROM {schema}.app_workflow AS a WHERE a.name = workflow AND a.app = coalesce(app, apps[1]);
    IF app IS NULL AND cardinality(apps) > 1 THEN
        RAISE EXCEPTION 'workflow % is of several Apps: %', quote_literal(workflow), array_to_string(apps, ', ')
            USING ERRCODE = refusal, HINT = 'say which one runs it, as in app => ' || quote_literal(apps[1])
                || '; if one of them has another name now: arriero store assign --from OLD --app NEW';
    ELSIF app IS NOT NULL AND whose.app IS NULL THEN
        RAISE EXCEPTION 'App % is not known to have workflow %', quote_literal(app), quote_literal(workflow)
            USING ERRCODE = refusal, HINT = 'look at the name, or start a process of it once; known to have it are '
                || coalesce(array_to_string(apps, ', '), 'none');
    ELSIF judged.refusal IS NOT NULL THEN
        RAISE EXCEPTION '%', judged.refusal USING ERRCODE = refusal, HINT = judged.hint;
    ELSIF judged.body IS NULL OR judged.body NOT LIKE '{%' THEN
        RAISE EXCEPTION 'arguments are %, not a JSON object', coalesce('a JSON ' || json_typeof(judged.body::json), 'null')
            USING ERRCODE = refusal, HINT = 'name each parameter of the workflow, as in {"order": {"id": "1001"}}';
    ELSIF length(id) NOT BETWEEN 1 AND 255 OR id ~ control THEN
        RAISE EXCEPTION 'task_id % is not 1 to 255 characters without control characters', quote_literal(id)
            USING ERRCODE = refusal, HINT = 'use a shorter text, such as the key of your own row';
    ELSIF reply_to IS NOT NULL AND (length(reply_to) NOT BETWEEN 1 AND 255 OR reply_to ~ control) THEN
        RAISE EXCEPTION 'reply_to % is not 1 to 255 characters without control characters', quote_literal(reply_to)
            USING ERRCODE = refusal, HINT = 'name a reply queue, or leave it out';
    ELSIF convoy IS NOT NULL AND (length(convoy) NOT BETWEEN 1 AND 255 OR convoy ~ control) THEN
        RAISE EXCEPTION 'convoy % is not 1 to 255 characters without control characters', quote_literal(convoy)
            USING ERRCODE = refusal, HINT = 'use a shorter key, such as the customer''s number';
    ELSIF convoy LIKE 'schedule %/%' THEN
        RAISE EXCEPTION 'convoy % is kept for the runs of a schedule', quote_literal(convoy)
            USING ERRCODE = refusal, HINT = 'choose another key';
    ELSIF convoy IS NULL AND (sequence IS NOT NULL OR end_of_sequence) THEN
        RAISE EXCEPTION 'sequence or end_of_sequence is given without convoy'
            USING ERRCODE = refusal, HINT = 'name the convoy that it numbers';
    ELSIF sequence NOT BETWEEN 1 AND 9007199254740992 THEN
        RAISE EXCEPTION 'sequence is %', sequence
            USING ERRCODE = refusal, HINT = 'use a whole number from 1 to 9007199254740992';
    ELSIF priority IS NULL OR priority NOT BETWEEN 0 AND 9 THEN
        RAISE EXCEPTION 'priority is %', coalesce(priority::text, 'null')
            USING ERRCODE = refusal, HINT = 'use 0 to 9; 9 is claimed first';
    ELSIF delay_seconds IS NULL OR NOT delay_seconds BETWEEN 0 AND 3162240000 THEN
        RAISE EXCEPTION 'delay_seconds is %', coalesce(delay_seconds::text, 'null')
            USING ERRCODE = refusal, HINT = 'use 0 or more, and no more than a century (3162240000)';
    END IF;
    SELECT * INTO kept FROM {schema}.keep_task(NULL, json_build_object(
        'task_id', id, 'workflow', workflow, 'arguments', judged.body,
        'body_hash', encode(sha256(convert_to(judged.body, 'UTF8')), 'hex'), 'policy', coalesce(whose.policy, known.policy),
        'priority', priority, 'delay', delay_seconds, 'complete_within', CASE WHEN whose.app IS NULL THEN known.complete_within ELSE whose.complete_within END,
        'seed', ('x' || substr(replace(gen_random_uuid()::text, '-', ''), 1, 15))::bit(60)::bigint,
        'reply_to', reply_to, 'actor', 'sql',
        'convoy', convoy, 'sequence', sequence, 'end_of_sequence', coalesce(end_of_sequence, false),
        'app', coalesce(whose.app, '')));
    IF kept.verdict = 'used' THEN
        RAISE EXCEPTION 'sequence % of convoy % is task %, which is another operation', sequence, quote_literal(convoy),
            quote_literal(kept.known_id)
            USING ERRCODE = 'unique_violation', HINT = 'number each operation of a convoy once';
    ELSIF kept.verdict = 'refused' THEN
        RAISE EXCEPTION 'convoy % cannot take the task: its end is %', quote_literal(convoy), kept.tail
            USING ERRCODE = refusal, HINT = 'it has ended, or is ordered otherwise (by place or by sequence)';
    ELSIF kept.verdict = 'ledger' THEN
        RAISE EXCEPTION 'task % belongs to a ledger that is not complete', quote_literal(coalesce(kept.known_id, id))
            USING ERRCODE = 'unique_violation', HINT = 'submit the ledger again, or discard it with arriero ledger discard';
    ELSIF kept.verdict NOT IN ('created', 'same') THEN
        RAISE EXCEPTION 'task % exists with another %', quote_literal(id), kept.verdict
            USING ERRCODE = 'unique_violation', HINT = 'use another task_id, or submit the same again';
    END IF;
    RETURN coalesce(kept.known_id, id);
END
$$;

-- submit: the same for arguments that are jsonb already: numbers, repeated keys and the like are as jsonb made them.
CREATE FUNCTION {schema}.submit(
    workflow text, arguments jsonb, task_id text DEFAULT NULL, priority integer DEFAULT 5,
    delay_seconds double precision DEFAULT 0, reply_to text DEFAULT NULL,
    convoy text DEFAULT NULL, sequence bigint DEFAULT NULL, end_of_sequence boolean DEFAULT false, app text DEFAULT NULL
) RETURNS text LANGUAGE sql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
    SELECT {schema}.submit(workflow, arguments::text, task_id, priority, delay_seconds, reply_to, convoy, sequence,
                           end_of_sequence, app)
$$;

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

-- Who may do what. The two doors of submitters work with their owner's rights, so that a role may submit without any right on
-- the tables; their search_path is fixed above. No function is everybody's, and who could write the tables keeps them all.
-- It goes over all functions of the schema, so it stands last.
DO $rights$
DECLARE
    one record;
BEGIN
    FOR one IN SELECT p.oid::regprocedure AS called, p.proname IN ('submit', 'keep_task') AS is_door,
                      p.proname IN ('submit', 'keep_task', 'judged_body', 'number_in_python', 'is_same_body') AS reads_texts
                 FROM pg_catalog.pg_proc AS p WHERE p.pronamespace = '{schema}'::regnamespace
    LOOP
        IF one.is_door THEN
            EXECUTE format('ALTER FUNCTION %s SECURITY DEFINER', one.called);
        END IF;
        IF one.reads_texts THEN  -- the session's own setting must not change how they are read
            EXECUTE format('ALTER FUNCTION %s SET standard_conforming_strings = on', one.called);
        END IF;
        EXECUTE format('REVOKE ALL ON FUNCTION %s FROM PUBLIC', one.called);
    END LOOP;
    FOR one IN SELECT DISTINCT given.grantee::regrole AS role
                 FROM pg_catalog.pg_class AS c, LATERAL pg_catalog.aclexplode(c.relacl) AS given
                WHERE c.oid = '{schema}.task'::regclass AND given.privilege_type = 'INSERT'
                  AND given.grantee NOT IN (0, c.relowner)
    LOOP
        EXECUTE format('GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA {schema} TO %s', one.role);
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
    FOR one IN SELECT p.oid::regprocedure AS called, may.submit AS role
                 FROM pg_catalog.pg_proc AS p,
                      string_to_table(current_setting('arriero.submitters', true), E'\n') AS may(submit)
                WHERE p.pronamespace = '{schema}'::regnamespace AND p.proname = 'submit' AND may.submit <> ''
    LOOP
        EXECUTE format('GRANT EXECUTE ON FUNCTION %s TO %s', one.called, one.role);
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
