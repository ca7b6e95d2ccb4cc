-- select_alerts: alerts in the order of their opening.
-- Params: after (no), open_only, limit.
SELECT no, alert.task_no, task_id, workflow, alert.incarnation, cause, reason, step, code, opened_at, closed_at, told,
       attempts, next_at, error, trace
  FROM arriero_alert AS alert JOIN arriero_task AS task ON task.task_no = alert.task_no
 WHERE no > :after AND (NOT :open_only OR closed_at IS NULL)
 ORDER BY no
 LIMIT :limit
