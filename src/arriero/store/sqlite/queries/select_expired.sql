-- select_expired: running steps whose time has passed, longest first.
-- Params: now, apart (JSON array: tasks to be left alone), limit.
SELECT step_no, task_no, ordinal, kind, name, key, agent, state, priority, arguments, policy,
       idempotency_key, pivot, effect_free, compensation, undoes, undo, attempt, failure_count,
       lost_count, taken, in_doubt, fence, locked_by, not_before, complete_by, wait_by, result, failure,
       result_number, delivered_at, opened_at, finished_at, asked, app
  FROM arriero_step INDEXED BY arriero_step_running
 WHERE complete_by IS NOT NULL AND complete_by <= :now
   AND step_no >> 20 NOT IN (SELECT value FROM json_each(:apart))
 ORDER BY complete_by, step_no
 LIMIT :limit
