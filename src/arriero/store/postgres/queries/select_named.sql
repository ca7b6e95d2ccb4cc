-- select_named: what a task is called, and its incarnation.
-- Params: task_no.
SELECT task_id, workflow, incarnation FROM {schema}.task WHERE task_no = %(task_no)s
