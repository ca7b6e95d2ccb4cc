-- Release 0.6.

-- Signals to a task that no wait of its code has taken yet.
ALTER TABLE arriero_task ADD COLUMN inbox INTEGER NOT NULL DEFAULT 0;

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
DROP TRIGGER arriero_task_removed;
CREATE TRIGGER arriero_task_removed AFTER DELETE ON arriero_task
BEGIN
    DELETE FROM arriero_edit WHERE task_no = OLD.task_no;
    DELETE FROM arriero_late_answer WHERE task_no = OLD.task_no;
    DELETE FROM arriero_signal WHERE task_no = OLD.task_no;
END;

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
DROP TRIGGER arriero_task_removed;
CREATE TRIGGER arriero_task_removed AFTER DELETE ON arriero_task
BEGIN
    DELETE FROM arriero_edit WHERE task_no = OLD.task_no;
    DELETE FROM arriero_late_answer WHERE task_no = OLD.task_no;
    DELETE FROM arriero_signal WHERE task_no = OLD.task_no;
    DELETE FROM arriero_published WHERE task_no = OLD.task_no;
END;

-- Tags: names with a value each, by which operators find a task.
ALTER TABLE arriero_task ADD COLUMN tags TEXT;
ALTER TABLE arriero_task ADD COLUMN submitted_tags TEXT;

-- Tasks that the code of others has started, their children.
ALTER TABLE arriero_task ADD COLUMN parent_step INTEGER;
ALTER TABLE arriero_task ADD COLUMN depth INTEGER NOT NULL DEFAULT 0;
CREATE UNIQUE INDEX arriero_task_parent_step ON arriero_task (parent_step) WHERE parent_step IS NOT NULL;
CREATE INDEX arriero_task_child_ended ON arriero_task (ended_at) WHERE parent_step IS NOT NULL AND ended_at IS NOT NULL;

-- Forks: tasks that do a part of another one again.
ALTER TABLE arriero_task ADD COLUMN forked_from INTEGER;
CREATE INDEX arriero_task_forked ON arriero_task (forked_from) WHERE forked_from IS NOT NULL;

-- Batches of a convoy: which task handles a message, and when a batch that is gathered is full.
ALTER TABLE arriero_task ADD COLUMN batch_no INTEGER;
CREATE INDEX arriero_task_batch ON arriero_task (batch_no) WHERE batch_no IS NOT NULL;
ALTER TABLE arriero_convoy ADD COLUMN full_at INTEGER;
CREATE INDEX arriero_convoy_gathers ON arriero_convoy (convoy_no) WHERE full_at IS NOT NULL;

-- The version of the code that began a task: only processes with that code continue it.
ALTER TABLE arriero_task ADD COLUMN code_version TEXT;

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

-- Questions to operators are alerts of their own cause; this is the row that waits for the answer.
ALTER TABLE arriero_alert ADD COLUMN step_no INTEGER;
CREATE UNIQUE INDEX arriero_alert_of_step ON arriero_alert (step_no) WHERE cause = 'question' AND closed_at IS NULL;
CREATE INDEX arriero_alert_question ON arriero_alert (no) WHERE cause = 'question' AND closed_at IS NULL;

-- Runs of a task whose code continues in another run.
ALTER TABLE arriero_task ADD COLUMN run INTEGER NOT NULL DEFAULT 1;
ALTER TABLE arriero_task ADD COLUMN first_no INTEGER;
ALTER TABLE arriero_task ADD COLUMN next_no INTEGER;
CREATE INDEX arriero_task_runs ON arriero_task (first_no) WHERE first_no IS NOT NULL;

-- Commits by which operators acted: an actor is named so, or the events begin so (behind ``[{"type":"``).
CREATE INDEX arriero_history_acts ON arriero_history (no)
 WHERE substr(actor, 1, 8) = 'operator'
    OR (task_no = 0 AND (substr(events, 11, 6) = 'token.' OR substr(events, 11, 12) = 'lease.broken'));
