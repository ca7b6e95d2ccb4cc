-- select_held: tasks held by a process, or with a step running there.
-- Params: process_no, limit.
SELECT task_no FROM {schema}.task WHERE locked_by = %(process_no)s
 UNION
SELECT task_no FROM {schema}.step WHERE locked_by = %(process_no)s
 ORDER BY task_no
 LIMIT %(limit)s
