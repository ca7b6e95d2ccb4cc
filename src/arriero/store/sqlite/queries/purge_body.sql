-- purge_body: of one purged task.
-- Params: task_no.
DELETE FROM arriero_body WHERE task_no = :task_no
