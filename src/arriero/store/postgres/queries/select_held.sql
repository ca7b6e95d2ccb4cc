-- select_held: tasks held by a process, or with a step running there.
-- Params: process_no, apart (tasks to be left alone), limit.
SELECT task_no FROM {schema}.task WHERE locked_by = %(process_no)s AND NOT task_no = ANY(%(apart)s::bigint[])
 UNION
SELECT task_no FROM {schema}.step WHERE locked_by = %(process_no)s AND NOT task_no = ANY(%(apart)s::bigint[])
 ORDER BY task_no
 LIMIT %(limit)s
