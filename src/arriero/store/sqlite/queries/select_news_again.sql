-- select_news_again: those of some tasks that a process holds.
-- Params: process_no, task_nos (JSON array: they could not be read some time ago).
SELECT task_no, revision
  FROM arriero_task
 WHERE task_no IN (SELECT value FROM json_each(:task_nos)) AND locked_by = :process_no
 ORDER BY task_no
