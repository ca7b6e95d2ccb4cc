-- purge_history: of one purged task.
-- Params: task_no.
DELETE FROM arriero_history WHERE task_no = :task_no
