-- select_retrying_of: of each of these tasks the step with the most failures of those that are tried again.
-- Params: task_nos (JSON array).
SELECT agent, task_no, task_id, name, key, kind, attempt, failure_count, failure, state, not_before
  FROM (SELECT step.agent, step.task_no, task.task_id, step.name, step.key, step.kind, step.attempt, step.failure_count,
               step.failure, step.state, step.not_before,
               row_number() OVER (PARTITION BY step.task_no ORDER BY step.failure_count DESC, step.step_no) AS position
          FROM json_each(:task_nos) AS asked
          JOIN arriero_task AS task ON task.task_no = asked.value
          JOIN arriero_step AS step
            ON step.step_no BETWEEN task.task_no << 20 AND (task.task_no << 20) + 1048575
         WHERE step.state IN ('pending', 'running') AND step.failure_count > 0)
 WHERE position = 1
 ORDER BY task_no
