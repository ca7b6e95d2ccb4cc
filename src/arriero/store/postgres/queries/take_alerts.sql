-- take_alerts: alerts that are to be told now, longest waiting first; nobody else takes them before next_at.
-- Params: now, next_at, limit.
WITH due AS (
    SELECT no, next_at AS was_due_at FROM {schema}.alert
     WHERE next_at IS NOT NULL AND next_at <= %(now)s
     ORDER BY next_at, no
     LIMIT %(limit)s
       FOR NO KEY UPDATE SKIP LOCKED
), taken AS (
    UPDATE {schema}.alert AS alert SET attempts = alert.attempts + 1, next_at = %(next_at)s
      FROM due WHERE alert.no = due.no
    RETURNING alert.*, due.was_due_at
)
SELECT taken.no, taken.task_no, task.task_id, task.workflow, taken.incarnation, cause, reason, step, code, opened_at, closed_at,
       told, attempts, next_at, error, trace
  FROM (SELECT * FROM taken) AS taken JOIN {schema}.task AS task ON task.task_no = taken.task_no
 ORDER BY was_due_at, taken.no
