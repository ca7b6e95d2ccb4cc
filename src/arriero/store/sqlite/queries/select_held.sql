-- select_held: tasks held by a process, or with a step running there.
-- Params: process_no, limit.
SELECT task_no FROM arriero_task WHERE locked_by = :process_no
 UNION
SELECT task_no FROM arriero_step WHERE locked_by = :process_no
 ORDER BY task_no
 LIMIT :limit
