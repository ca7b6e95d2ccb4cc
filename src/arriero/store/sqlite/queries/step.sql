-- select_step: one step.
SELECT step_no, task_no, ordinal, kind, name, key, agent, state, priority, arguments, policy,
       idempotency_key, pivot, effect_free, compensation, undoes, undo, attempt, failure_count,
       lost_count, taken, in_doubt, fence, locked_by, not_before, complete_by, wait_by, result, failure,
       result_number, delivered_at, opened_at, finished_at, asked, app,
       target, canary, charged_at
  FROM arriero_step
 WHERE step_no = :step_no

-- select_steps: all steps of a task in the order in which they were opened.
-- Params: first, end (step numbers; end is not in it).
SELECT step_no, task_no, ordinal, kind, name, key, agent, state, priority, arguments, policy,
       idempotency_key, pivot, effect_free, compensation, undoes, undo, attempt, failure_count,
       lost_count, taken, in_doubt, fence, locked_by, not_before, complete_by, wait_by, result, failure,
       result_number, delivered_at, opened_at, finished_at, asked, app,
       target, canary, charged_at
  FROM arriero_step
 WHERE step_no >= :first AND step_no < :end
 ORDER BY step_no

-- select_open_steps: pending and running steps of a task, timers included, in the order in which they were opened.
-- Params: first, end (step numbers; end is not in it).
SELECT step_no, task_no, ordinal, kind, name, key, agent, state, priority, arguments, policy,
       idempotency_key, pivot, effect_free, compensation, undoes, undo, attempt, failure_count,
       lost_count, taken, in_doubt, fence, locked_by, not_before, complete_by, wait_by, result, failure,
       result_number, delivered_at, opened_at, finished_at, asked, app,
       target, canary, charged_at
  FROM arriero_step
 WHERE step_no >= :first AND step_no < :end AND state IN ('pending', 'running')
 ORDER BY step_no

-- select_agents: the Agents of steps. Missing: the step is gone, or is a timer.
-- Params: step_nos (JSON array).
SELECT step_no, agent FROM json_each(:step_nos) AS asked JOIN arriero_step AS step ON step.step_no = asked.value
 WHERE step.kind <> 'timer'

-- select_takeable: due requests for one Agent, App and priority, oldest first.
-- A request without an App comes from a process of an older release; it belongs to its task's App.
-- Params: app, own (the App of the process), names (JSON array: steps with code here), probation_from, probation (steps of
-- tasks on probation: null any, else only of this task), apart (JSON array: tasks to be left alone), barred (JSON array: targets
-- that a breaker lets nothing through to).
SELECT step.step_no, step.task_no, ordinal, kind, name, key, agent, step.state, step.priority, arguments, step.policy,
       idempotency_key, pivot, effect_free, compensation, undoes, undo, attempt, step.failure_count,
       step.lost_count, taken, in_doubt, step.fence, step.locked_by, step.not_before, step.complete_by, wait_by, result,
       step.failure, result_number, delivered_at, opened_at, finished_at, asked, step.app,
       target, canary, charged_at
  FROM arriero_step AS step INDEXED BY arriero_step_takeable
 CROSS JOIN arriero_task AS task ON task.task_no = step.task_no
 WHERE step.state = 'pending' AND kind <> 'timer' AND agent = :agent AND step.app = :app AND step.priority = :priority
   AND (step.app <> '' OR task.app IN ('', :own))
   AND step.not_before <= :now AND name IN (SELECT value FROM json_each(:names))
   AND (task.lost_count < :probation_from OR :probation IS NULL OR task.task_no = :probation)
   AND step.task_no NOT IN (SELECT value FROM json_each(:apart))
   AND target NOT IN (SELECT value FROM json_each(:barred))
 ORDER BY step.not_before, step.step_no
 LIMIT :limit

-- select_expired: running steps whose time has passed, longest first.
-- Params: apart (JSON array: tasks to be left alone).
SELECT step_no, task_no, ordinal, kind, name, key, agent, state, priority, arguments, policy,
       idempotency_key, pivot, effect_free, compensation, undoes, undo, attempt, failure_count,
       lost_count, taken, in_doubt, fence, locked_by, not_before, complete_by, wait_by, result, failure,
       result_number, delivered_at, opened_at, finished_at, asked, app,
       target, canary, charged_at
  FROM arriero_step INDEXED BY arriero_step_running
 WHERE complete_by IS NOT NULL AND complete_by <= :now
   AND step_no >> 20 NOT IN (SELECT value FROM json_each(:apart))
 ORDER BY complete_by, step_no
 LIMIT :limit

-- select_next_deadline: the earliest deadline of an attempt, a request or a task between two instants.
-- Params: now, until.
-- Rows: one; null: there is none. The rows of tasks that are set apart count: a pass too many harms nothing.
SELECT min(deadline) FROM (
    SELECT min(complete_by) AS deadline FROM arriero_step INDEXED BY arriero_step_running
     WHERE complete_by IS NOT NULL AND complete_by > :now AND complete_by <= :until
     UNION ALL
    SELECT min(wait_by) FROM arriero_step INDEXED BY arriero_step_starving
     WHERE wait_by IS NOT NULL AND state = 'pending' AND wait_by > :now AND wait_by <= :until
     UNION ALL
    SELECT min(complete_by) FROM arriero_task INDEXED BY arriero_task_limit
     WHERE complete_by IS NOT NULL AND state IN ('pending', 'processing') AND paused_at IS NULL
       AND complete_by > :now AND complete_by <= :until
)

-- select_starved: requests that nobody took within wait_within.
-- Params: apart (JSON array: tasks to be left alone).
SELECT step_no, task_no, ordinal, kind, name, key, agent, state, priority, arguments, policy,
       idempotency_key, pivot, effect_free, compensation, undoes, undo, attempt, failure_count,
       lost_count, taken, in_doubt, fence, locked_by, not_before, complete_by, wait_by, result, failure,
       result_number, delivered_at, opened_at, finished_at, asked, app,
       target, canary, charged_at
  FROM arriero_step INDEXED BY arriero_step_starving
 WHERE wait_by IS NOT NULL AND wait_by <= :now AND state = 'pending'
   AND step_no >> 20 NOT IN (SELECT value FROM json_each(:apart))
 ORDER BY wait_by, step_no
 LIMIT :limit
