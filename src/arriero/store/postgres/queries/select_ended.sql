-- select_ended: those of some tasks that have ended.
-- Params: task_nos.
SELECT {task} FROM {schema}.task
 WHERE task_no = ANY(%(task_nos)s) AND state IN ('processed', 'compensated', 'error')
 ORDER BY task_no
