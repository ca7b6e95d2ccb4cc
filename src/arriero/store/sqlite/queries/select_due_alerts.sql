-- select_due_alerts: alerts that are to be told now, longest waiting first.
-- Params: now, limit.
SELECT no, alert.task_no, task_id, workflow, alert.incarnation, cause, reason, step, code, opened_at, closed_at, told,
       attempts, next_at, error, trace
  FROM arriero_alert AS alert JOIN arriero_task AS task ON task.task_no = alert.task_no
 WHERE next_at IS NOT NULL AND next_at <= :now
 ORDER BY next_at, no
 LIMIT :limit
