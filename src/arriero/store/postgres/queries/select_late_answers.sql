-- select_late_answers: what attempts of a task answered when they no longer counted, in the order of the commits.
-- Params: task_no.
SELECT {late_answer} FROM {schema}.late_answer WHERE task_no = %(task_no)s ORDER BY link
