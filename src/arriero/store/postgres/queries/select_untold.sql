-- select_untold: those of some tasks with an alert that is still to be told.
-- Params: task_nos.
SELECT DISTINCT task_no FROM {schema}.alert WHERE next_at IS NOT NULL AND task_no = ANY(%(task_nos)s)
