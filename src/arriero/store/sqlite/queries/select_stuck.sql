-- select_stuck: held tasks whose news nobody looked at since an instant.
-- Params: since, apart (JSON array: tasks to be left alone), limit.
SELECT task_no
  FROM arriero_task INDEXED BY arriero_task_unseen
 WHERE unseen_since IS NOT NULL AND unseen_since <= :since AND locked_by IS NOT NULL
   AND task_no NOT IN (SELECT value FROM json_each(:apart))
 ORDER BY unseen_since, task_no
 LIMIT :limit
