-- What people do: pausing, resubmitting, editing; messages to submitters, alerts, and what a process runs.
ALTER TABLE arriero_task ADD COLUMN paused_at INTEGER;
ALTER TABLE arriero_task ADD COLUMN undoing INTEGER NOT NULL DEFAULT 0;
ALTER TABLE arriero_task ADD COLUMN past_count INTEGER NOT NULL DEFAULT 0;
ALTER TABLE arriero_task ADD COLUMN branched_at INTEGER;
ALTER TABLE arriero_task ADD COLUMN reply_to TEXT;
ALTER TABLE arriero_task ADD COLUMN status_count INTEGER NOT NULL DEFAULT 0;
ALTER TABLE arriero_step ADD COLUMN asked TEXT;
ALTER TABLE arriero_body ADD COLUMN asked TEXT;
ALTER TABLE arriero_process ADD COLUMN about TEXT NOT NULL DEFAULT '{}';

-- Whose undo has begun, and not only been asked for in vain because of a pivot.
UPDATE arriero_task SET undoing = 1
 WHERE state IN ('compensating', 'compensated')
    OR (state = 'error'
        AND (json_extract(failure, '$.kind') IN ('undo', 'in_doubt')
             OR EXISTS (SELECT 1 FROM arriero_step AS step
                         WHERE step.step_no BETWEEN arriero_task.task_no << 20 AND (arriero_task.task_no << 20) + 1048575
                           AND step.kind = 'compensation')
             OR (json_extract(failure, '$.kind') = 'lost'
                 AND EXISTS (SELECT 1 FROM arriero_history AS history
                              WHERE history.task_no = arriero_task.task_no AND history.events LIKE '%"undo.begun"%'))));

DROP INDEX arriero_task_claimable;
CREATE INDEX arriero_task_claimable ON arriero_task (priority, not_before)
 WHERE locked_by IS NULL AND not_before IS NOT NULL AND paused_at IS NULL;

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

-- Tasks that need a person: opened when a task goes into error, closed when it leaves it.
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
    error TEXT NOT NULL
);
CREATE INDEX arriero_alert_of_task ON arriero_alert (task_no);
CREATE INDEX arriero_alert_due ON arriero_alert (next_at) WHERE next_at IS NOT NULL;
