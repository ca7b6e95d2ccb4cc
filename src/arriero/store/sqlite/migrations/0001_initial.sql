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
    head TEXT NOT NULL
);

-- Claiming: what is free and due, by priority and time. Ended tasks have no not_before and leave it.
CREATE INDEX arriero_task_claimable ON arriero_task (priority, not_before)
 WHERE locked_by IS NULL AND not_before IS NOT NULL;
CREATE INDEX arriero_task_held ON arriero_task (locked_by) WHERE locked_by IS NOT NULL;
CREATE INDEX arriero_task_limit ON arriero_task (complete_by)
 WHERE complete_by IS NOT NULL AND state IN ('pending', 'processing');
CREATE INDEX arriero_task_unseen ON arriero_task (unseen_since) WHERE unseen_since IS NOT NULL;
CREATE INDEX arriero_task_error ON arriero_task (task_no) WHERE state = 'error';

-- Apart from the task's row, which changes often: these do not.
CREATE TABLE arriero_body (
    task_no INTEGER PRIMARY KEY,
    arguments TEXT NOT NULL
);

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
    finished_at INTEGER
);

CREATE INDEX arriero_step_takeable ON arriero_step (agent, priority, not_before)
 WHERE state = 'pending' AND kind <> 'timer';
CREATE INDEX arriero_step_running ON arriero_step (complete_by) WHERE complete_by IS NOT NULL;
CREATE INDEX arriero_step_held ON arriero_step (locked_by) WHERE locked_by IS NOT NULL;
CREATE INDEX arriero_step_starving ON arriero_step (wait_by) WHERE wait_by IS NOT NULL;

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

CREATE TABLE arriero_process (
    process_no INTEGER PRIMARY KEY,
    instance TEXT NOT NULL UNIQUE,
    lease_until INTEGER NOT NULL,
    retired INTEGER NOT NULL
);

CREATE TABLE arriero_lease (
    name TEXT PRIMARY KEY,
    term INTEGER NOT NULL,
    holder INTEGER,
    until INTEGER NOT NULL
) WITHOUT ROWID;
