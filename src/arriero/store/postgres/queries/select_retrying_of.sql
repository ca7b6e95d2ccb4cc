-- select_retrying_of: of each of these tasks the step with the most failures of those that are tried again.
-- OFFSET 0: as in select_steps.
-- Params: task_nos.
SELECT s.agent, task.task_no, task.task_id, s.name, s.key, s.kind, s.attempt, s.failure_count, s.failure, s.state,
       s.not_before
  FROM {schema}.task AS task,
       LATERAL (SELECT * FROM (SELECT step_no, agent, name, key, kind, attempt, failure_count, failure, state, not_before
                                 FROM {schema}.step
                                WHERE step_no >= task.task_no << 20 AND step_no < (task.task_no + 1) << 20
                                  AND state IN ('pending', 'running') AND failure_count > 0
                               OFFSET 0) AS failed
                 ORDER BY failure_count DESC, step_no LIMIT 1) AS s
 WHERE task.task_no = ANY(%(task_nos)s::bigint[])
 ORDER BY task.task_no
