-- survey_tasks: counts for the doctor.
-- Rows: one: paused tasks; tasks on probation; free due tasks, since when; alerts to deliver, since when; all tasks, history,
-- statuses.
SELECT (SELECT count(*) FROM {schema}.task WHERE paused_at IS NOT NULL),
       (SELECT count(*) FROM {schema}.task
         WHERE lost_count >= %(probation_from)s AND state IN ('pending', 'processing', 'compensating')),
       (SELECT count(*) FROM {schema}.task
         WHERE locked_by IS NULL AND not_before IS NOT NULL AND paused_at IS NULL AND not_before <= %(now)s),
       (SELECT min(not_before) FROM {schema}.task
         WHERE locked_by IS NULL AND not_before IS NOT NULL AND paused_at IS NULL AND not_before <= %(now)s),
       (SELECT count(*) FROM {schema}.alert WHERE next_at IS NOT NULL),
       (SELECT min(coalesce(closed_at, opened_at)) FROM {schema}.alert WHERE next_at IS NOT NULL),
       (SELECT count(*) FROM {schema}.task), (SELECT count(*) FROM {schema}.history), (SELECT count(*) FROM {schema}.status)

-- survey_workflows: Apps and workflows of free due tasks; an undo needs no workflow code.
-- The index is asked for one pair after the other, so a backlog is not read through.
-- Params: now.
WITH RECURSIVE found (workflow, app) AS (
       (SELECT workflow, app FROM {schema}.task
         WHERE locked_by IS NULL AND not_before IS NOT NULL AND paused_at IS NULL AND state <> 'compensating'
         ORDER BY workflow, app LIMIT 1)
        UNION ALL
       SELECT following.workflow, following.app
         FROM found, LATERAL (SELECT workflow, app FROM {schema}.task
                               WHERE locked_by IS NULL AND not_before IS NOT NULL AND paused_at IS NULL AND state <> 'compensating'
                                 AND (workflow, app) > (found.workflow, found.app)
                               ORDER BY workflow, app LIMIT 1) AS following)
SELECT app, workflow FROM found
 WHERE (SELECT min(not_before) FROM {schema}.task
         WHERE locked_by IS NULL AND not_before IS NOT NULL AND paused_at IS NULL AND state <> 'compensating'
           AND workflow = found.workflow AND app = found.app) <= %(now)s
 ORDER BY app, workflow

-- survey_requests: for each Agent the due requests, since when the oldest is due, and those that are not due yet.
SELECT agent, count(*) FILTER (WHERE not_before <= %(now)s), min(not_before) FILTER (WHERE not_before <= %(now)s),
       count(*) FILTER (WHERE not_before > %(now)s)
  FROM {schema}.step WHERE state = 'pending' AND kind <> 'timer' AND not_before IS NOT NULL
 GROUP BY agent
 ORDER BY agent

-- survey_steps: Apps, Agents and names of due requests.
SELECT DISTINCT app, agent, name FROM {schema}.step
 WHERE state = 'pending' AND kind <> 'timer' AND not_before <= %(now)s
 ORDER BY app, agent, name

-- survey_running: running attempts by Agent.
SELECT agent, count(*) FROM {schema}.step WHERE complete_by IS NOT NULL GROUP BY agent ORDER BY agent

-- survey_not_undoable: steps of tasks not ended well that have no compensation and are neither effect_free nor a pivot. OFFSET 0: see select_steps.
SELECT DISTINCT s.agent, s.name
  FROM {schema}.task AS task,
       LATERAL (SELECT agent, name FROM {schema}.step
                 WHERE step_no >= task.task_no << 20 AND step_no < (task.task_no + 1) << 20
                   AND kind = 'step' AND compensation IS NULL AND NOT effect_free AND NOT pivot
                OFFSET 0) AS s
 WHERE task.state NOT IN ('processed', 'compensated')
 ORDER BY s.agent, s.name

-- survey_processes: processes that are not retired.
SELECT process_no, instance, lease_until, retired, about, room FROM {schema}.process WHERE NOT retired ORDER BY process_no

-- survey_queues: reply queues with statuses that nobody acknowledged.
SELECT queue, count(*), min(at) FROM {schema}.status GROUP BY queue ORDER BY queue

-- select_retrying: steps that failed and are tried again: the running ones, and of each Agent the pending ones that are due last.
-- Only so many rows are read: a long backlog would make the question slow.
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

-- select_retrying_of: for each task the step with the most failures of those that are tried again. OFFSET 0: see select_steps.
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
