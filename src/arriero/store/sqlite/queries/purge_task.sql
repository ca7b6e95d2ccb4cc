-- purge_task: of one purged task.
-- Params: task_no.
DELETE FROM arriero_task WHERE task_no = :task_no
