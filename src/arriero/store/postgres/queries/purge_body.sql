-- purge_body: rows of some tasks.
-- Params: task_nos.
DELETE FROM {schema}.body WHERE task_no = ANY(%(task_nos)s)
