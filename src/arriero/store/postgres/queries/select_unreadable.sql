-- select_unreadable: tasks with an open alert that tells of a row which cannot be read.
-- Params: limit.
SELECT task_no FROM {schema}.alert
 WHERE cause = 'unreadable' AND closed_at IS NULL
 ORDER BY task_no
 LIMIT %(limit)s
