-- select_held: tasks held by a process, or with a step running there.
-- Params: process_no, apart (JSON array: tasks to be left alone), limit.
SELECT task_no FROM arriero_task WHERE locked_by = :process_no AND task_no NOT IN (SELECT value FROM json_each(:apart))
 UNION
SELECT task_no FROM arriero_step WHERE locked_by = :process_no AND task_no NOT IN (SELECT value FROM json_each(:apart))
 ORDER BY task_no
 LIMIT :limit
