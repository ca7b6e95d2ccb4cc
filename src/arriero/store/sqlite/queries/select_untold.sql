-- select_untold: those of some tasks with an alert that is still to be told.
-- Params: task_nos (JSON array).
SELECT DISTINCT task_no FROM arriero_alert
 WHERE next_at IS NOT NULL AND task_no IN (SELECT value FROM json_each(:task_nos))
