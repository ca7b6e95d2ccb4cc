-- select_takeable: due requests for one Agent and priority, oldest first.
-- Params: agent, priority, now, names (JSON array: steps whose code is here), limit.
SELECT step_no, task_no, ordinal, kind, name, key, agent, state, priority, arguments, policy,
       idempotency_key, pivot, effect_free, compensation, undoes, undo, attempt, failure_count,
       lost_count, taken, in_doubt, fence, locked_by, not_before, complete_by, wait_by, result, failure,
       result_number, delivered_at, opened_at, finished_at
  FROM arriero_step INDEXED BY arriero_step_takeable
 WHERE state = 'pending' AND kind <> 'timer' AND agent = :agent AND priority = :priority AND not_before <= :now
   AND name IN (SELECT value FROM json_each(:names))
 ORDER BY not_before
 LIMIT :limit
