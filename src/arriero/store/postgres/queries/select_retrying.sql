-- select_retrying: steps of which an attempt failed and that are tried again: pending ones, of each Agent those whose
-- time comes last, and running ones. Only so many are looked at: behind a long backlog they would not be found quickly.
-- Params: limit.
SELECT step.agent, step.task_no, task.task_id, step.name, step.key, step.kind, step.attempt, step.failure_count,
       step.failure, step.state, step.not_before
  FROM (SELECT step_no FROM (SELECT step_no, row_number() OVER (PARTITION BY agent ORDER BY not_before DESC) AS position
                               FROM {schema}.step
                              WHERE state = 'pending' AND kind <> 'timer' AND not_before IS NOT NULL) AS pending
         WHERE position <= %(limit)s
        UNION ALL
        (SELECT step_no FROM {schema}.step WHERE complete_by IS NOT NULL ORDER BY complete_by LIMIT %(limit)s)) AS looked_at
  JOIN {schema}.step AS step ON step.step_no = looked_at.step_no
  JOIN {schema}.task AS task ON task.task_no = step.task_no
 WHERE step.failure_count > 0
 ORDER BY step.step_no
