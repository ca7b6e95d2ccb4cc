-- select_starved: requests nobody took within wait_within.
-- Params: now, apart (JSON array: tasks to be left alone), limit.
SELECT step_no, task_no, ordinal, kind, name, key, agent, state, priority, arguments, policy,
       idempotency_key, pivot, effect_free, compensation, undoes, undo, attempt, failure_count,
       lost_count, taken, in_doubt, fence, locked_by, not_before, complete_by, wait_by, result, failure,
       result_number, delivered_at, opened_at, finished_at, asked, app
  FROM arriero_step INDEXED BY arriero_step_starving
 WHERE wait_by IS NOT NULL AND wait_by <= :now AND state = 'pending'
   AND step_no >> 20 NOT IN (SELECT value FROM json_each(:apart))
 ORDER BY wait_by, step_no
 LIMIT :limit
