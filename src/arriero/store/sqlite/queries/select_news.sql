-- select_news: tasks held by a process for which something was recorded by others.
-- Params: process_no, apart (JSON array: tasks to be left alone).
SELECT task_no, revision
  FROM arriero_task INDEXED BY arriero_task_unseen
 WHERE unseen_since IS NOT NULL AND locked_by = :process_no
   AND task_no NOT IN (SELECT value FROM json_each(:apart))
 ORDER BY unseen_since, task_no
