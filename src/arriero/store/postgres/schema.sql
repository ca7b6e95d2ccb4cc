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
    paused_at bigint,               -- since when an operator keeps it from going on
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
    submitter text,                 -- the token that submitted it, if its open tasks are capped; it stays
    snoozed_until bigint,           -- nothing new of it begins before: so an operator wants it
    inbox integer NOT NULL DEFAULT 0, -- signals that no wait of its code has taken
    tags text,                      -- JSON object of texts, by name; null: it has none
    submitted_tags text,            -- those that it came with, as its code sees them, where an operator has changed them
    parent_step bigint,             -- the step of another task that it is; it stays
    depth integer NOT NULL DEFAULT 0, -- how many tasks stand above it
    forked_from bigint,             -- of a fork: the step from which on it does another task again; it stays
    batch_no bigint,                -- the task that handles its message in a batch, which may be itself
    code_version text,              -- of the code that began it, as VERSION or VERSION@DEPLOYMENT; null: version 1, or it has not begun
    run integer NOT NULL DEFAULT 1, -- its code continued in another run after each before it
    first_no bigint,                -- number of its first run; null: there is one run
    next_no bigint                  -- number of the run that has the task's id since this one ended
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
CREATE INDEX task_runs ON {schema}.task (first_no) WHERE first_no IS NOT NULL;
CREATE UNIQUE INDEX task_parent_step ON {schema}.task (parent_step) WHERE parent_step IS NOT NULL;
-- Children that have ended, by when: for a parent that was not woken, because the process died that was about to do so.
CREATE INDEX task_child_ended ON {schema}.task (ended_at) WHERE parent_step IS NOT NULL AND ended_at IS NOT NULL;
CREATE INDEX task_forked ON {schema}.task (forked_from) WHERE forked_from IS NOT NULL;
CREATE INDEX task_batch ON {schema}.task (batch_no) WHERE batch_no IS NOT NULL;
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
    asked text                      -- what was submitted, where an operator edited it
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

-- What others send to a task: signals, answers to its questions and callbacks, requests. Kept until the task is purged.
CREATE TABLE {schema}.signal (
    task_no bigint NOT NULL REFERENCES {schema}.task ON DELETE CASCADE,
    number integer NOT NULL,        -- 1, 2, ... in the order of their commits
    name text NOT NULL,             -- of the waits that may take it
    signal_id text NOT NULL,        -- given by the sender; sent again it changes nothing
    value text NOT NULL,            -- JSON text
    sent_by text NOT NULL,
    sent_at bigint NOT NULL,
    step integer,                   -- ordinal of the wait that took it; null: it is in the inbox
    wants_reply boolean NOT NULL,   -- a request
    reply text,                     -- JSON text; null: there is none yet
    replied_at bigint,
    PRIMARY KEY (task_no, number)
);
CREATE UNIQUE INDEX signal_id ON {schema}.signal (task_no, signal_id);
CREATE INDEX signal_inbox ON {schema}.signal (task_no, number) WHERE step IS NULL;
CREATE INDEX signal_aside ON {schema}.signal (sent_at) WHERE step = 0;

-- The latest value that a task (ordinal 0) or a step has published, for those who look at the task.
CREATE TABLE {schema}.published (
    task_no bigint NOT NULL REFERENCES {schema}.task ON DELETE CASCADE,
    ordinal integer NOT NULL,
    value text,                     -- JSON text; null: only a step has published
    number bigint NOT NULL,         -- 1, 2, ... of the values that were written here
    at bigint NOT NULL,             -- when it was published
    fence bigint NOT NULL,          -- of the attempt that published it; 0: workflow code did
    status_at bigint,               -- of ordinal 0: when the last status of kind progress may be read
    PRIMARY KEY (task_no, ordinal)
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
    asked text,                     -- what the code asks with, where an operator had other arguments sent
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
-- Commits by which operators acted: an actor is named so, or the events begin so (behind ten characters of JSON).
CREATE INDEX history_acts ON {schema}.history (no)
 WHERE substr(actor, 1, 8) = 'operator'
    OR (task_no = 0 AND (substr(events, 11, 6) = 'token.' OR substr(events, 11, 12) = 'lease.broken'));
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
    broken_by text NOT NULL DEFAULT '',      -- an operator took it from its holder
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

-- Tasks that need an operator: opened when a task is held, closed when that ends.
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
    trace text,                     -- JSON array: where in the code the failure was
    step_no bigint                  -- of a question: the row that waits for the answer
);
CREATE INDEX alert_of_task ON {schema}.alert (task_no);
CREATE INDEX alert_due ON {schema}.alert (next_at) WHERE next_at IS NOT NULL;
CREATE INDEX alert_open ON {schema}.alert (no) WHERE closed_at IS NULL;
-- Of a row that a release cannot read an operator is told once, whoever finds it.
CREATE UNIQUE INDEX alert_unreadable ON {schema}.alert (task_no, step) WHERE cause = 'unreadable' AND closed_at IS NULL;
CREATE UNIQUE INDEX alert_of_step ON {schema}.alert (step_no) WHERE cause = 'question' AND closed_at IS NULL;
CREATE INDEX alert_question ON {schema}.alert (no) WHERE cause = 'question' AND closed_at IS NULL;

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
    alerted_task bigint,            -- the task whose alert tells an operator of the gap
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
    trace_link text,                -- to the span of the last task that ended in its turn: trace and span, in hexadecimal
    full_at bigint                  -- the batch that its open task gathers is full once that number of tasks was placed
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.0, autovacuum_vacuum_threshold = 5000,
        autovacuum_vacuum_cost_delay = 0);
CREATE INDEX convoy_gathers ON {schema}.convoy (convoy_no) WHERE full_at IS NOT NULL;
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
    probe_at bigint,                -- when the next canary may go; null: only an operator closes it
    ramp_from bigint,               -- when the first canary succeeded
    wave bigint NOT NULL,           -- canaries that may go under this fence
    granted bigint NOT NULL,        -- canaries of this wave
    succeeded bigint NOT NULL,
    failed bigint NOT NULL,
    reason text NOT NULL,
    opened_by text NOT NULL,        -- an operator; empty: it opened by itself
    paused_at bigint,               -- since when an operator keeps the Agent from taking anything
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

-- The offset of the store's clock; see now_at.
INSERT INTO {schema}.meta (name, value) VALUES ('clock_offset', '0');

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

-- Tags of tasks, to find tasks by them. A trigger keeps it as the column tags of their tasks says.
CREATE TABLE {schema}.task_tag (
    name text NOT NULL,
    value text NOT NULL,
    tagged_no bigint NOT NULL REFERENCES {schema}.task ON DELETE CASCADE,
    PRIMARY KEY (name, value, tagged_no)
);
CREATE INDEX task_tag_of ON {schema}.task_tag (tagged_no);

-- Workflows that operators have paused for new tasks.
CREATE TABLE {schema}.workflow_pause (
    app text NOT NULL,
    workflow text NOT NULL,
    state text NOT NULL,            -- paused, refusing, resuming
    paused_by text NOT NULL,
    pause_reason text NOT NULL,
    paused_at bigint NOT NULL,
    PRIMARY KEY (app, workflow)
);
