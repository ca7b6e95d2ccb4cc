-- insert_step: keep a new step, timer or compensation.
-- Params: the step's fields.
INSERT INTO arriero_step (step_no, task_no, ordinal, kind, name, key, agent, state, priority, arguments, policy,
       idempotency_key, pivot, effect_free, compensation, undoes, undo, attempt, failure_count,
       lost_count, taken, in_doubt, fence, locked_by, not_before, complete_by, wait_by, result, failure,
       result_number, delivered_at, opened_at, finished_at, asked)
VALUES (:step_no, :task_no, :ordinal, :kind, :name, :key, :agent, :state, :priority, :arguments, :policy,
       :idempotency_key, :pivot, :effect_free, :compensation, :undoes, :undo, :attempt, :failure_count,
       :lost_count, :taken, :in_doubt, :fence, :locked_by, :not_before, :complete_by, :wait_by, :result,
       :failure, :result_number, :delivered_at, :opened_at, :finished_at, :asked)
