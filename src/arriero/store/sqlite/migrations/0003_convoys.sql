-- Convoys: tasks of one key in order.
ALTER TABLE arriero_task ADD COLUMN convoy_no INTEGER;
ALTER TABLE arriero_task ADD COLUMN place INTEGER;
ALTER TABLE arriero_task ADD COLUMN sequence INTEGER;
ALTER TABLE arriero_task ADD COLUMN rank INTEGER;
ALTER TABLE arriero_task ADD COLUMN turn TEXT;
ALTER TABLE arriero_task ADD COLUMN due_at INTEGER;
ALTER TABLE arriero_task ADD COLUMN ledger_no INTEGER;
CREATE INDEX arriero_task_waiting ON arriero_task (convoy_no, rank, place) WHERE turn = 'waiting';
CREATE INDEX arriero_task_set_aside ON arriero_task (convoy_no, place) WHERE turn = 'set_aside';
CREATE UNIQUE INDEX arriero_task_sequence ON arriero_task (convoy_no, sequence) WHERE sequence IS NOT NULL;
CREATE INDEX arriero_task_ledger ON arriero_task (ledger_no) WHERE ledger_no IS NOT NULL;

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
    alerted_task INTEGER,           -- the task whose alert tells a person of the gap
    look_at INTEGER,                -- when it is to be decided anew whose turn it is
    parked_at INTEGER,
    parked_why TEXT NOT NULL,
    on_head TEXT,                   -- its own policy; null: the workflows'
    on_gap TEXT,
    gap_within REAL,
    value TEXT,                     -- the state of the key, as JSON text
    created_at INTEGER NOT NULL,
    link INTEGER NOT NULL,          -- of its own stream in the history
    head TEXT NOT NULL
);
CREATE INDEX arriero_convoy_due ON arriero_convoy (look_at) WHERE look_at IS NOT NULL;
CREATE INDEX arriero_convoy_busy ON arriero_convoy (convoy_no) WHERE state <> 'idle' OR parked_at IS NOT NULL;

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
    opened_at INTEGER
);
CREATE INDEX arriero_ledger_unfinished ON arriero_ledger (ledger_no) WHERE state <> 'done';

-- Entries of a ledger that became no tasks, and why.
CREATE TABLE arriero_ledger_aside (
    ledger_no INTEGER NOT NULL,
    line INTEGER NOT NULL,
    reason TEXT NOT NULL,
    PRIMARY KEY (ledger_no, line)
) WITHOUT ROWID;
