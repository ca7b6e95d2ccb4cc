-- purge_alerts: of one purged task.
-- Params: task_no.
DELETE FROM arriero_alert WHERE task_no = :task_no
