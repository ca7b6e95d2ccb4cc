-- purge_task: rows of some tasks.
-- Params: task_nos.
DELETE FROM {schema}.task WHERE task_no = ANY(%(task_nos)s)
