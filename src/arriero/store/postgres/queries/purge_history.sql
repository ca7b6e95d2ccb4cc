-- purge_history: rows of some tasks.
-- Params: task_nos.
DELETE FROM {schema}.history WHERE task_no = ANY(%(task_nos)s)
