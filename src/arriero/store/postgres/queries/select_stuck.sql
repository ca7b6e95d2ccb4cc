-- select_stuck: held tasks whose news nobody looked at since an instant.
-- Params: since, apart (tasks to be left alone), limit.
SELECT task_no FROM {schema}.task
 WHERE unseen_since IS NOT NULL AND unseen_since <= %(since)s AND locked_by IS NOT NULL
   AND NOT task_no = ANY(%(apart)s::bigint[])
 ORDER BY unseen_since, task_no
 LIMIT %(limit)s
