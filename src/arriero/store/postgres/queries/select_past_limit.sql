-- select_past_limit: tasks whose own limit has passed.
-- Params: now, apart (tasks to be left alone), limit.
SELECT task_no FROM {schema}.task
 WHERE complete_by IS NOT NULL AND state IN ('pending', 'processing') AND complete_by <= %(now)s AND paused_at IS NULL
   AND NOT task_no = ANY(%(apart)s::bigint[])
 ORDER BY complete_by, task_no
 LIMIT %(limit)s
