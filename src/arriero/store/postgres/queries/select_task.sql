-- select_task: one task.
-- Params: task_no.
SELECT {task} FROM {schema}.task WHERE task_no = %(task_no)s
