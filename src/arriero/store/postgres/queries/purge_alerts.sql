-- purge_alerts: rows of some tasks.
-- Params: task_nos.
DELETE FROM {schema}.alert WHERE task_no = ANY(%(task_nos)s)
