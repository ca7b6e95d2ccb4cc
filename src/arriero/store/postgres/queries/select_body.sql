-- select_body: the arguments of a task's workflow.
-- Params: task_no.
SELECT arguments FROM {schema}.body WHERE task_no = %(task_no)s
