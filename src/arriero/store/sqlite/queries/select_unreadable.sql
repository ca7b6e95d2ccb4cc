-- select_unreadable: tasks with an open alert that tells of a row which cannot be read.
-- Params: limit.
SELECT task_no FROM arriero_alert INDEXED BY arriero_alert_unreadable
 WHERE cause = 'unreadable' AND closed_at IS NULL
 ORDER BY task_no
 LIMIT :limit
