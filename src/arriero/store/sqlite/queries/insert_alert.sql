-- insert_alert: a task needs a person. Of alerts that tell of an unreadable row one task has at most one open.
-- Params: the alert's fields.
INSERT INTO arriero_alert (task_no, incarnation, cause, reason, step, code, opened_at, closed_at, told, attempts, next_at, error,
                           trace)
VALUES (:task_no, :incarnation, :cause, :reason, :step, :code, :opened_at, NULL, '[]', 0, :next_at, '', :trace)
    ON CONFLICT DO NOTHING
