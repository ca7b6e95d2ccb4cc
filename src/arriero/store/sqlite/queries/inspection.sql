-- survey_tasks: counts for the doctor.
-- Rows: one: paused tasks; tasks on probation; free due tasks, since when; alerts to deliver, since when; all tasks, history,
-- statuses.
SELECT (SELECT count(*) FROM arriero_task WHERE paused_at IS NOT NULL),
       (SELECT count(*) FROM arriero_task
         WHERE lost_count >= :probation_from AND state IN ('pending', 'processing', 'compensating')),
       (SELECT count(*) FROM arriero_task
         WHERE locked_by IS NULL AND not_before IS NOT NULL AND paused_at IS NULL AND not_before <= :now),
       (SELECT min(not_before) FROM arriero_task
         WHERE locked_by IS NULL AND not_before IS NOT NULL AND paused_at IS NULL AND not_before <= :now),
       (SELECT count(*) FROM arriero_alert WHERE next_at IS NOT NULL),
       (SELECT min(coalesce(closed_at, opened_at)) FROM arriero_alert WHERE next_at IS NOT NULL),
       (SELECT count(*) FROM arriero_task), (SELECT count(*) FROM arriero_history), (SELECT count(*) FROM arriero_status)

-- survey_workflows: Apps and workflows of free due tasks; an undo needs no workflow code.
-- The index is asked for one pair after the other, so a backlog is not read through.
-- Params: now, priorities (JSON array).
WITH RECURSIVE found (workflow, app) AS (
       SELECT workflow, app
         FROM (SELECT workflow, app FROM arriero_task INDEXED BY arriero_task_due
                WHERE locked_by IS NULL AND not_before IS NOT NULL AND paused_at IS NULL AND state <> 'compensating'
                ORDER BY workflow, app LIMIT 1)
        UNION ALL
       SELECT task.workflow, task.app
         FROM found JOIN arriero_task AS task
           ON task.task_no = (SELECT task_no FROM arriero_task INDEXED BY arriero_task_due
                               WHERE locked_by IS NULL AND not_before IS NOT NULL AND paused_at IS NULL AND state <> 'compensating'
                                 AND (workflow, app) > (found.workflow, found.app)
                               ORDER BY workflow, app LIMIT 1))
SELECT app, workflow FROM found
 WHERE EXISTS (SELECT 1 FROM json_each(:priorities) AS priorities
                WHERE (SELECT min(not_before) FROM arriero_task INDEXED BY arriero_task_due
                        WHERE locked_by IS NULL AND not_before IS NOT NULL AND paused_at IS NULL AND state <> 'compensating'
                          AND workflow = found.workflow AND app = found.app AND priority = priorities.value) <= :now)
 ORDER BY app, workflow

-- survey_requests: for each Agent the due requests, since when the oldest is due, and those that are not due yet.
SELECT agent, sum(not_before <= :now), min(CASE WHEN not_before <= :now THEN not_before END), sum(not_before > :now)
  FROM arriero_step INDEXED BY arriero_step_takeable
 WHERE state = 'pending' AND kind <> 'timer' AND not_before IS NOT NULL
 GROUP BY agent
 ORDER BY agent

-- survey_steps: Apps, Agents and names of due requests.
SELECT DISTINCT app, agent, name FROM arriero_step
 WHERE state = 'pending' AND kind <> 'timer' AND not_before <= :now
 ORDER BY app, agent, name

-- survey_running: running attempts by Agent.
SELECT agent, count(*) FROM arriero_step INDEXED BY arriero_step_running WHERE complete_by IS NOT NULL
 GROUP BY agent ORDER BY agent

-- survey_not_undoable: steps of tasks not ended well that have no compensation and are neither effect_free nor a pivot.
SELECT DISTINCT step.agent, step.name
  FROM arriero_task AS task JOIN arriero_step AS step
    ON step.step_no BETWEEN task.task_no << 20 AND (task.task_no << 20) + 1048575
 WHERE task.state NOT IN ('processed', 'compensated')
   AND step.kind = 'step' AND step.compensation IS NULL AND NOT step.effect_free AND NOT step.pivot
 ORDER BY step.agent, step.name

-- survey_processes: processes that are not retired.
SELECT process_no, instance, lease_until, retired, about, room FROM arriero_process WHERE NOT retired ORDER BY process_no

-- survey_queues: reply queues with statuses that nobody acknowledged.
SELECT queue, count(*), min(at) FROM arriero_status GROUP BY queue ORDER BY queue

-- select_retrying: steps that failed and are tried again: the running ones, and of each Agent the pending ones that are due last.
-- Only so many rows are read: a long backlog would make the question slow.
SELECT step.agent, step.task_no, task.task_id, step.name, step.key, step.kind, step.attempt, step.failure_count,
       step.failure, step.state, step.not_before
  FROM (SELECT step_no FROM (SELECT step_no, row_number() OVER (PARTITION BY agent ORDER BY not_before DESC) AS position
                               FROM arriero_step INDEXED BY arriero_step_takeable
                              WHERE state = 'pending' AND kind <> 'timer' AND not_before IS NOT NULL)
         WHERE position <= :limit
        UNION ALL
        SELECT step_no FROM (SELECT step_no FROM arriero_step INDEXED BY arriero_step_running
                              WHERE complete_by IS NOT NULL LIMIT :limit)) AS looked_at
  JOIN arriero_step AS step ON step.step_no = looked_at.step_no
  JOIN arriero_task AS task ON task.task_no = step.task_no
 WHERE step.failure_count > 0
 ORDER BY step.step_no

-- select_retrying_of: for each task the step with the most failures of those that are tried again.
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
