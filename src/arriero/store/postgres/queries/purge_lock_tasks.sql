-- purge_lock_tasks: rows of some tasks, ours until the transaction ends; those that another transaction holds are left out.
-- Params: task_nos.
SELECT {task} FROM {schema}.task WHERE task_no = ANY(%(task_nos)s) ORDER BY task_no FOR UPDATE SKIP LOCKED
