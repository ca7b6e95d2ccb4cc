-- select_stuck: held tasks whose news nobody looked at since an instant.
-- Params: since, limit.
SELECT task_no FROM {schema}.task
 WHERE unseen_since IS NOT NULL AND unseen_since <= %(since)s AND locked_by IS NOT NULL
 ORDER BY unseen_since, task_no
 LIMIT %(limit)s
