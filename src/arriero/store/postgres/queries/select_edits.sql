-- select_edits: payloads of a task that people gave or replaced, in the order of the commits.
-- Params: task_no.
SELECT {edit} FROM {schema}.edit WHERE task_no = %(task_no)s ORDER BY link
