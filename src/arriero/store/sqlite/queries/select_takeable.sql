-- select_takeable: due requests for one Agent, App and priority, oldest first. One that does not say its App, as a process
-- of an older release leaves it, is of its task's App.
-- Params: agent, app, own (the App of the process), priority, now, names (JSON array: steps whose code is here), probation_from, probation (steps of tasks
-- on probation: null any, else only of this task), apart (JSON array: tasks to be left alone), limit.
SELECT step.step_no, step.task_no, ordinal, kind, name, key, agent, step.state, step.priority, arguments, step.policy,
       idempotency_key, pivot, effect_free, compensation, undoes, undo, attempt, step.failure_count,
       step.lost_count, taken, in_doubt, step.fence, step.locked_by, step.not_before, step.complete_by, wait_by, result,
       step.failure, result_number, delivered_at, opened_at, finished_at, asked, step.app
  FROM arriero_step AS step INDEXED BY arriero_step_takeable
 CROSS JOIN arriero_task AS task ON task.task_no = step.task_no
 WHERE step.state = 'pending' AND kind <> 'timer' AND agent = :agent AND step.app = :app AND step.priority = :priority
   AND (step.app <> '' OR task.app IN ('', :own))
   AND step.not_before <= :now AND name IN (SELECT value FROM json_each(:names))
   AND (task.lost_count < :probation_from OR :probation IS NULL OR task.task_no = :probation)
   AND step.task_no NOT IN (SELECT value FROM json_each(:apart))
 ORDER BY step.not_before, step.step_no
 LIMIT :limit
