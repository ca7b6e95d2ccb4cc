-- Today's schema; a test finds it equal to the sum of the migrations.
-- All instants are microseconds since 1970 by the store's clock; payloads are JSON text.
CREATE TABLE arriero_meta (
    name TEXT PRIMARY KEY,
    value TEXT NOT NULL
) WITHOUT ROWID;

CREATE TABLE arriero_task (
    task_no INTEGER PRIMARY KEY,
    task_id TEXT NOT NULL UNIQUE,
    workflow TEXT NOT NULL,
    state TEXT NOT NULL,
    priority INTEGER NOT NULL,
    not_before INTEGER,             -- null: only news wakes it, or it has ended
    locked_by INTEGER,              -- the process that holds it; null: free
    fence INTEGER NOT NULL,
    revision INTEGER NOT NULL,
    incarnation INTEGER NOT NULL,
    failure_count INTEGER NOT NULL,
    lost_count INTEGER NOT NULL,
    opened_count INTEGER NOT NULL,
    open_count INTEGER NOT NULL,
    result_count INTEGER NOT NULL,
    unseen_since INTEGER,
    seed INTEGER NOT NULL,
    policy TEXT NOT NULL,
    body_hash TEXT NOT NULL,
    submitted_at INTEGER NOT NULL,
    started_at INTEGER,
    ended_at INTEGER,
    complete_by INTEGER,
    output TEXT,
    failure TEXT,
    link INTEGER NOT NULL,
    head TEXT NOT NULL,
    paused_at INTEGER,              -- since when an operator keeps it from going on
    undoing INTEGER NOT NULL DEFAULT 0, -- its undo has begun in this incarnation
    past_count INTEGER NOT NULL DEFAULT 0, -- steps up to this ordinal belong to a life undone as a whole
    branched_at INTEGER,            -- steps opened from here on followed a failure that is done again
    reply_to TEXT,                  -- the submitter's reply queue
    status_count INTEGER NOT NULL DEFAULT 0,
    convoy_no INTEGER,
    place INTEGER,                  -- in its convoy, by the order of commits
    sequence INTEGER,               -- the producer's own number
    rank INTEGER,                   -- by which those that wait are taken
    turn TEXT,                      -- waiting, open, ended, set_aside; null: in no convoy
    due_at INTEGER,                 -- of one whose turn has not come: it does not start before
    ledger_no INTEGER,              -- of the ledger that has not let it go yet
    app TEXT NOT NULL DEFAULT '',   -- the App that runs it; empty: not said
    trace_context TEXT,             -- of who submitted it: traceparent, a space and tracestate, as W3C Trace Context has them
    from_ledger INTEGER,            -- of the ledger that it came with; it stays
    submitter TEXT,                 -- the token that submitted it, if its open tasks are capped; it stays
    snoozed_until INTEGER,          -- nothing new of it begins before: so an operator wants it
    inbox INTEGER NOT NULL DEFAULT 0, -- signals that no wait of its code has taken
    tags TEXT,                      -- JSON object of texts, by name; null: it has none
    submitted_tags TEXT,            -- those that it came with, as its code sees them, where an operator has changed them
    parent_step INTEGER,            -- the step of another task that it is; it stays
    depth INTEGER NOT NULL DEFAULT 0, -- how many tasks stand above it
    forked_from INTEGER,            -- of a fork: the step from which on it does another task again; it stays
    batch_no INTEGER,               -- the task that handles its message in a batch, which may be itself
    code_version TEXT,              -- of the code that began it, as VERSION or VERSION@DEPLOYMENT; null: version 1, or it has not begun
    run INTEGER NOT NULL DEFAULT 1, -- its code continued in another run after each before it
    first_no INTEGER,               -- number of its first run; null: there is one run
    next_no INTEGER                 -- number of the run that has the task's id since this one ended
);

-- What is free and due, by priority and time. Ended tasks have no not_before and leave it. Release 0.4.0 claims by it.
CREATE INDEX arriero_task_claimable ON arriero_task (priority, not_before)
 WHERE locked_by IS NULL AND not_before IS NOT NULL AND paused_at IS NULL;
-- What is due, by workflow and App: a process must not read through the backlog of workflows whose code it does not have.
CREATE INDEX arriero_task_due ON arriero_task (workflow, app, priority, not_before)
 WHERE locked_by IS NULL AND not_before IS NOT NULL AND paused_at IS NULL AND state <> 'compensating';
CREATE INDEX arriero_task_undo_due ON arriero_task (app, priority, not_before)
 WHERE locked_by IS NULL AND not_before IS NOT NULL AND paused_at IS NULL AND state = 'compensating';
CREATE INDEX arriero_task_held ON arriero_task (locked_by) WHERE locked_by IS NOT NULL;
CREATE INDEX arriero_task_limit ON arriero_task (complete_by)
 WHERE complete_by IS NOT NULL AND state IN ('pending', 'processing');
CREATE INDEX arriero_task_unseen ON arriero_task (unseen_since) WHERE unseen_since IS NOT NULL;
CREATE INDEX arriero_task_error ON arriero_task (task_no) WHERE state = 'error';
-- Runs of schedules that have not ended. A run's id is APP/NAME@INSTANT.
CREATE INDEX arriero_task_open_run ON arriero_task (task_id)
 WHERE state IN ('pending', 'processing', 'compensating') AND task_id GLOB '*/*@*Z';
CREATE UNIQUE INDEX arriero_task_parent_step ON arriero_task (parent_step) WHERE parent_step IS NOT NULL;
-- Children that have ended, by when: for a parent that was not woken, because the process died that was about to do so.
CREATE INDEX arriero_task_child_ended ON arriero_task (ended_at) WHERE parent_step IS NOT NULL AND ended_at IS NOT NULL;
CREATE INDEX arriero_task_forked ON arriero_task (forked_from) WHERE forked_from IS NOT NULL;
CREATE INDEX arriero_task_batch ON arriero_task (batch_no) WHERE batch_no IS NOT NULL;
CREATE INDEX arriero_task_runs ON arriero_task (first_no) WHERE first_no IS NOT NULL;
CREATE INDEX arriero_task_waiting ON arriero_task (convoy_no, rank, place) WHERE turn = 'waiting';
CREATE INDEX arriero_task_set_aside ON arriero_task (convoy_no, place) WHERE turn = 'set_aside';
CREATE UNIQUE INDEX arriero_task_sequence ON arriero_task (convoy_no, sequence) WHERE sequence IS NOT NULL;
CREATE INDEX arriero_task_ledger ON arriero_task (ledger_no) WHERE ledger_no IS NOT NULL;
CREATE INDEX arriero_task_from_ledger ON arriero_task (from_ledger) WHERE from_ledger IS NOT NULL;
CREATE INDEX arriero_task_from_ledger_open ON arriero_task (from_ledger)
 WHERE from_ledger IS NOT NULL AND state NOT IN ('processed', 'compensated', 'error');
CREATE INDEX arriero_task_submitter_open ON arriero_task (submitter)
 WHERE submitter IS NOT NULL AND state NOT IN ('processed', 'compensated', 'error');

-- Apart from the task's row, which changes often: these do not.
CREATE TABLE arriero_body (
    task_no INTEGER PRIMARY KEY,
    arguments TEXT NOT NULL,
    asked TEXT                      -- what was submitted, where an operator edited it
);

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

-- What others send to a task: signals, answers to its questions and callbacks, requests. Kept until the task is purged.
CREATE TABLE arriero_signal (
    task_no INTEGER NOT NULL,
    number INTEGER NOT NULL,        -- 1, 2, ... in the order of their commits
    name TEXT NOT NULL,             -- of the waits that may take it
    signal_id TEXT NOT NULL,        -- given by the sender; sent again it changes nothing
    value TEXT NOT NULL,            -- JSON text
    sent_by TEXT NOT NULL,
    sent_at INTEGER NOT NULL,
    step INTEGER,                   -- ordinal of the wait that took it; null: it is in the inbox
    wants_reply INTEGER NOT NULL,   -- a request
    reply TEXT,                     -- JSON text; null: there is none yet
    replied_at INTEGER,
    PRIMARY KEY (task_no, number)
) WITHOUT ROWID;
CREATE UNIQUE INDEX arriero_signal_id ON arriero_signal (task_no, signal_id);
CREATE INDEX arriero_signal_inbox ON arriero_signal (task_no, number) WHERE step IS NULL;
CREATE INDEX arriero_signal_aside ON arriero_signal (sent_at) WHERE step = 0;

-- The latest value that a task (ordinal 0) or a step has published, for those who look at the task.
CREATE TABLE arriero_published (
    task_no INTEGER NOT NULL,
    ordinal INTEGER NOT NULL,
    value TEXT,                     -- JSON text; null: only a step has published
    number INTEGER NOT NULL,        -- 1, 2, ... of the values that were written here
    at INTEGER NOT NULL,            -- when it was published
    fence INTEGER NOT NULL,         -- of the attempt that published it; 0: workflow code did
    status_at INTEGER,              -- of ordinal 0: when the last status of kind progress may be read
    PRIMARY KEY (task_no, ordinal)
) WITHOUT ROWID;

CREATE TRIGGER arriero_task_removed AFTER DELETE ON arriero_task
BEGIN
    DELETE FROM arriero_edit WHERE task_no = OLD.task_no;
    DELETE FROM arriero_late_answer WHERE task_no = OLD.task_no;
    DELETE FROM arriero_signal WHERE task_no = OLD.task_no;
    DELETE FROM arriero_published WHERE task_no = OLD.task_no;
END;

-- Tags of tasks, to find tasks by them. The triggers keep it as the column tags of their tasks says.
CREATE TABLE arriero_task_tag (
    name TEXT NOT NULL,
    value TEXT NOT NULL,
    tagged_no INTEGER NOT NULL,     -- task_no
    PRIMARY KEY (name, value, tagged_no)
) WITHOUT ROWID;
CREATE TRIGGER arriero_task_tagged AFTER INSERT ON arriero_task WHEN NEW.tags IS NOT NULL
BEGIN
    INSERT INTO arriero_task_tag (name, value, tagged_no) SELECT key, value, NEW.task_no FROM json_each(NEW.tags);
END;
CREATE TRIGGER arriero_task_tags_changed AFTER UPDATE OF tags ON arriero_task WHEN OLD.tags IS NOT NEW.tags
BEGIN
    DELETE FROM arriero_task_tag
     WHERE (name, value, tagged_no) IN (SELECT key, value, OLD.task_no FROM json_each(coalesce(OLD.tags, '{}')));
    INSERT INTO arriero_task_tag (name, value, tagged_no)
    SELECT key, value, NEW.task_no FROM json_each(coalesce(NEW.tags, '{}'));
END;
CREATE TRIGGER arriero_task_tags_removed AFTER DELETE ON arriero_task WHEN OLD.tags IS NOT NULL
BEGIN
    DELETE FROM arriero_task_tag
     WHERE (name, value, tagged_no) IN (SELECT key, value, OLD.task_no FROM json_each(OLD.tags));
END;

CREATE TABLE arriero_step (
    step_no INTEGER PRIMARY KEY,    -- task_no and ordinal in one number, so that a task's steps lie side by side
    task_no INTEGER NOT NULL,
    ordinal INTEGER NOT NULL,
    kind TEXT NOT NULL,
    name TEXT NOT NULL,
    key TEXT NOT NULL,
    agent TEXT NOT NULL,
    state TEXT NOT NULL,
    priority INTEGER NOT NULL,
    arguments TEXT NOT NULL,
    policy TEXT NOT NULL,
    idempotency_key TEXT NOT NULL,
    pivot INTEGER NOT NULL,
    effect_free INTEGER NOT NULL,
    compensation TEXT,
    undoes INTEGER,
    undo TEXT,
    attempt INTEGER NOT NULL,
    failure_count INTEGER NOT NULL,
    lost_count INTEGER NOT NULL,
    taken INTEGER NOT NULL,
    in_doubt INTEGER NOT NULL,
    fence INTEGER NOT NULL,
    locked_by INTEGER,
    not_before INTEGER,
    complete_by INTEGER,            -- set while an attempt runs
    wait_by INTEGER,                -- set while a request waits for its first attempt under wait_within
    result TEXT,
    failure TEXT,
    result_number INTEGER,
    delivered_at INTEGER,
    opened_at INTEGER NOT NULL,
    finished_at INTEGER,
    asked TEXT,                     -- what the code asks with, where an operator had other arguments sent
    app TEXT NOT NULL DEFAULT '',   -- as of its task
    target TEXT NOT NULL DEFAULT '', -- the part of its Agent's service that it calls
    canary INTEGER,                 -- the fence of the breaker that lets this attempt through; 0: it failed in an outage
    charged_at TEXT,               -- JSON array: when its last counted failures were
    checkpoint TEXT,                -- what an attempt kept for those after it, as JSON text
    limit_keys TEXT,                -- JSON object: what its Agent's limits count it under; null: there were none
    routing TEXT NOT NULL DEFAULT '' -- whether it may go to other Agents: pinned, interchangeable; empty: there are none
);

CREATE INDEX arriero_step_takeable ON arriero_step (agent, app, priority, not_before)
 WHERE state = 'pending' AND kind <> 'timer';
CREATE INDEX arriero_step_running ON arriero_step (complete_by) WHERE complete_by IS NOT NULL;
CREATE INDEX arriero_step_held ON arriero_step (locked_by) WHERE locked_by IS NOT NULL;
CREATE INDEX arriero_step_starving ON arriero_step (wait_by) WHERE wait_by IS NOT NULL;
CREATE INDEX arriero_step_waiting_keys ON arriero_step (agent, app, limit_keys, priority, not_before)
 WHERE state = 'pending' AND limit_keys IS NOT NULL;
CREATE INDEX arriero_step_running_keys ON arriero_step (agent, app, limit_keys)
 WHERE state = 'running' AND limit_keys IS NOT NULL;

CREATE TABLE arriero_history (
    no INTEGER PRIMARY KEY,
    task_no INTEGER NOT NULL,       -- 0: of the store itself
    link INTEGER NOT NULL,
    at INTEGER NOT NULL,
    actor TEXT NOT NULL,
    events TEXT NOT NULL,
    hash TEXT NOT NULL
);
CREATE UNIQUE INDEX arriero_history_of_task ON arriero_history (task_no, link);
-- Commits by which operators acted: an actor is named so, or the events begin so (behind ``[{"type":"``).
CREATE INDEX arriero_history_acts ON arriero_history (no)
 WHERE substr(actor, 1, 8) = 'operator'
    OR (task_no = 0 AND (substr(events, 11, 6) = 'token.' OR substr(events, 11, 12) = 'lease.broken'));

CREATE TABLE arriero_process (
    process_no INTEGER PRIMARY KEY,
    instance TEXT NOT NULL UNIQUE,
    lease_until INTEGER NOT NULL,
    retired INTEGER NOT NULL,
    about TEXT NOT NULL DEFAULT '{}', -- what it runs, as JSON text
    room TEXT NOT NULL DEFAULT ''   -- of its Agents at its last renewal, as JSON text
);
-- Each renewal reads the processes that are not retired.
CREATE INDEX arriero_process_alive ON arriero_process (process_no) WHERE NOT retired;

CREATE TABLE arriero_lease (
    name TEXT PRIMARY KEY,
    term INTEGER NOT NULL,
    holder INTEGER,
    until INTEGER NOT NULL,
    owner TEXT NOT NULL DEFAULT '',          -- who holds it, where it is no process
    duration INTEGER NOT NULL DEFAULT 0,   -- microseconds
    since INTEGER NOT NULL DEFAULT 0,
    broken_by TEXT NOT NULL DEFAULT '',      -- an operator took it from its holder
    broken_reason TEXT NOT NULL DEFAULT ''
) WITHOUT ROWID;

-- Messages to submitters: kept until their reader acknowledges them. No number is given twice: an old one must not
-- acknowledge a new message.
CREATE TABLE arriero_status (
    no INTEGER PRIMARY KEY AUTOINCREMENT,
    queue TEXT NOT NULL,
    task_no INTEGER NOT NULL,       -- 0: a gap mark
    number INTEGER NOT NULL,        -- of the task's statuses: 1, 2, ...
    incarnation INTEGER NOT NULL,
    kind TEXT NOT NULL,
    at INTEGER NOT NULL,
    data TEXT NOT NULL
);
CREATE INDEX arriero_status_of_queue ON arriero_status (queue, no);
CREATE INDEX arriero_status_of_task ON arriero_status (task_no);
CREATE INDEX arriero_status_old ON arriero_status (at);

-- Tasks that need an operator: opened when a task is held, closed when that ends.
CREATE TABLE arriero_alert (
    no INTEGER PRIMARY KEY AUTOINCREMENT,
    task_no INTEGER NOT NULL,
    incarnation INTEGER NOT NULL,
    cause TEXT NOT NULL,
    reason TEXT NOT NULL,
    step TEXT NOT NULL,
    code TEXT NOT NULL,
    opened_at INTEGER NOT NULL,
    closed_at INTEGER,
    told TEXT NOT NULL,             -- JSON array: sinks that know its present state
    attempts INTEGER NOT NULL,
    next_at INTEGER,                -- when to tell it (again); null: every sink knows
    error TEXT NOT NULL,
    trace TEXT,                     -- JSON array: where in the code the failure was
    step_no INTEGER                 -- of a question: the row that waits for the answer
);
CREATE INDEX arriero_alert_of_task ON arriero_alert (task_no);
CREATE INDEX arriero_alert_due ON arriero_alert (next_at) WHERE next_at IS NOT NULL;
CREATE INDEX arriero_alert_open ON arriero_alert (no) WHERE closed_at IS NULL;
-- Of a row that a release cannot read an operator is told once, whoever finds it.
CREATE UNIQUE INDEX arriero_alert_unreadable ON arriero_alert (task_no, step) WHERE cause = 'unreadable' AND closed_at IS NULL;
CREATE UNIQUE INDEX arriero_alert_of_step ON arriero_alert (step_no) WHERE cause = 'question' AND closed_at IS NULL;
CREATE INDEX arriero_alert_question ON arriero_alert (no) WHERE cause = 'question' AND closed_at IS NULL;

-- What a key is doing. Keys stay when their tasks have ended.
CREATE TABLE arriero_convoy (
    convoy_no INTEGER PRIMARY KEY,
    key TEXT NOT NULL,
    ordering TEXT NOT NULL,
    state TEXT NOT NULL,
    open_task INTEGER,              -- whose turn it is
    fence INTEGER NOT NULL,
    number INTEGER NOT NULL,        -- of its last event
    from_rank INTEGER NOT NULL,     -- nothing that waits stands before it
    reached INTEGER NOT NULL,       -- the highest rank whose turn has come
    expected INTEGER NOT NULL,      -- the next number of the producer's sequence
    gap_since INTEGER,
    alerted_task INTEGER,           -- the task whose alert tells an operator of the gap
    look_at INTEGER,                -- when it is to be decided anew whose turn it is
    parked_at INTEGER,
    parked_why TEXT NOT NULL,
    on_head TEXT,                   -- its own policy; null: the workflows'
    on_gap TEXT,
    gap_within REAL,
    value TEXT,                     -- the state of the key, as JSON text
    created_at INTEGER NOT NULL,
    link INTEGER NOT NULL,          -- of its own stream in the history
    head TEXT NOT NULL,
    trace_link TEXT,                -- to the span of the last task that ended in its turn: trace and span, in hexadecimal
    full_at INTEGER                 -- the batch that its open task gathers is full once that number of tasks was placed
);
CREATE INDEX arriero_convoy_gathers ON arriero_convoy (convoy_no) WHERE full_at IS NOT NULL;
CREATE INDEX arriero_convoy_due ON arriero_convoy (look_at) WHERE look_at IS NOT NULL;
CREATE INDEX arriero_convoy_busy ON arriero_convoy (convoy_no) WHERE state <> 'idle' OR parked_at IS NOT NULL;
CREATE INDEX arriero_convoy_still ON arriero_convoy (convoy_no) WHERE state IN ('stopped', 'gap') OR parked_at IS NOT NULL;

-- Where new tasks are placed.
CREATE TABLE arriero_convoy_tail (
    convoy_no INTEGER PRIMARY KEY,
    key TEXT NOT NULL UNIQUE,
    ordering TEXT NOT NULL,
    placed INTEGER NOT NULL,        -- the last place
    last_rank INTEGER NOT NULL,     -- the greatest place or sequence
    end_rank INTEGER,               -- the producer's end mark
    asks INTEGER NOT NULL           -- nothing can be opened as things stand
);

-- Messages with operations on many keys: their tasks are there for nobody before opened_at. No number is given twice.
CREATE TABLE arriero_ledger (
    ledger_no INTEGER PRIMARY KEY AUTOINCREMENT,
    ledger_id TEXT NOT NULL UNIQUE,
    state TEXT NOT NULL,            -- writing, discarding, opened, done
    digest TEXT NOT NULL,           -- over the entries written so far
    written INTEGER NOT NULL,       -- entries
    accepted INTEGER NOT NULL,      -- of them new tasks
    duplicates INTEGER NOT NULL,
    aside INTEGER NOT NULL,         -- entries set aside
    let_go INTEGER NOT NULL,        -- tasks let go
    reached INTEGER NOT NULL,       -- task_no of the last one let go, or removed
    created_at INTEGER NOT NULL,
    written_at INTEGER NOT NULL,
    opened_at INTEGER,
    linked INTEGER NOT NULL DEFAULT 0 -- of the accepted tasks: those whose rows keep its number
);
CREATE INDEX arriero_ledger_unfinished ON arriero_ledger (ledger_no) WHERE state <> 'done';

-- Entries of a ledger that became no tasks, and why.
CREATE TABLE arriero_ledger_aside (
    ledger_no INTEGER NOT NULL,
    line INTEGER NOT NULL,
    reason TEXT NOT NULL,
    PRIMARY KEY (ledger_no, line)
) WITHOUT ROWID;

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
    probe_at INTEGER,               -- when the next canary may go; null: only an operator closes it
    ramp_from INTEGER,              -- when the first canary succeeded
    wave INTEGER NOT NULL,          -- canaries that may go under this fence
    granted INTEGER NOT NULL,       -- canaries of this wave
    succeeded INTEGER NOT NULL,
    failed INTEGER NOT NULL,
    reason TEXT NOT NULL,
    opened_by TEXT NOT NULL,        -- an operator; empty: it opened by itself
    paused_at INTEGER,              -- since when an operator keeps the Agent from taking anything
    paused_by TEXT NOT NULL,
    pause_reason TEXT NOT NULL,
    PRIMARY KEY (app, agent, target)
) WITHOUT ROWID;

CREATE INDEX arriero_breaker_half_open ON arriero_breaker (agent, app, target) WHERE state = 'half_open';

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

CREATE TABLE arriero_migration (
    number INTEGER PRIMARY KEY,
    name TEXT NOT NULL,
    applied_at INTEGER NOT NULL
);

-- Workflows that operators have paused for new tasks.
CREATE TABLE arriero_workflow_pause (
    app TEXT NOT NULL,
    workflow TEXT NOT NULL,
    state TEXT NOT NULL,            -- paused, refusing, resuming
    paused_by TEXT NOT NULL,
    pause_reason TEXT NOT NULL,
    paused_at INTEGER NOT NULL,
    PRIMARY KEY (app, workflow)
) WITHOUT ROWID;
