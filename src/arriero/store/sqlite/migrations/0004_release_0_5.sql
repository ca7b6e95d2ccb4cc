-- What is due, by workflow: a process must not read through the backlog of workflows whose code it does not have.
CREATE INDEX arriero_task_due ON arriero_task (workflow, priority, not_before)
 WHERE locked_by IS NULL AND not_before IS NOT NULL AND paused_at IS NULL AND state <> 'compensating';
CREATE INDEX arriero_task_undo_due ON arriero_task (priority, not_before)
 WHERE locked_by IS NULL AND not_before IS NOT NULL AND paused_at IS NULL AND state = 'compensating';

-- Where in the user's code the failure of an alert's task was, as JSON text.
ALTER TABLE arriero_alert ADD COLUMN trace TEXT;

-- Alerts that tell of a row which a release cannot read: one open for each task, whoever finds it.
CREATE UNIQUE INDEX arriero_alert_unreadable ON arriero_alert (task_no) WHERE cause = 'unreadable' AND closed_at IS NULL;
