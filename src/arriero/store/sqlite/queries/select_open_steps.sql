-- select_open_steps: pending and running rows of a task, timers included, in the order of opening.
-- Params: first, end (step numbers: from, and up to but without).
SELECT step_no, task_no, ordinal, kind, name, key, agent, state, priority, arguments, policy,
       idempotency_key, pivot, effect_free, compensation, undoes, undo, attempt, failure_count,
       lost_count, taken, in_doubt, fence, locked_by, not_before, complete_by, wait_by, result, failure,
       result_number, delivered_at, opened_at, finished_at, asked, app
  FROM arriero_step
 WHERE step_no >= :first AND step_no < :end AND state IN ('pending', 'running')
 ORDER BY step_no
