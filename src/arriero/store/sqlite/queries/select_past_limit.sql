-- select_past_limit: tasks whose own limit has passed.
-- Params: now, apart (JSON array: tasks to be left alone), limit.
SELECT task_no
  FROM arriero_task INDEXED BY arriero_task_limit
 WHERE complete_by IS NOT NULL AND state IN ('pending', 'processing') AND complete_by <= :now AND paused_at IS NULL
   AND task_no NOT IN (SELECT value FROM json_each(:apart))
 ORDER BY complete_by, task_no
 LIMIT :limit
