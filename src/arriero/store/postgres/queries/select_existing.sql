-- select_existing: those of some task numbers that exist.
-- Params: task_nos.
SELECT task_no FROM {schema}.task WHERE task_no = ANY(%(task_nos)s)
