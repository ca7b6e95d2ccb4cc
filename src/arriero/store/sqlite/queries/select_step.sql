-- select_step: one step by its number.
SELECT step_no, task_no, ordinal, kind, name, key, agent, state, priority, arguments, policy,
       idempotency_key, pivot, effect_free, compensation, undoes, undo, attempt, failure_count,
       lost_count, taken, in_doubt, fence, locked_by, not_before, complete_by, wait_by, result, failure,
       result_number, delivered_at, opened_at, finished_at, asked, app
  FROM arriero_step
 WHERE step_no = :step_no
