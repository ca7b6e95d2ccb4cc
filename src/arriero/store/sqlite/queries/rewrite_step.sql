-- rewrite_step: as update_step, with what only a resubmission changes.
-- Params: the step's fields.
UPDATE arriero_step
   SET state = :state,
       attempt = :attempt,
       failure_count = :failure_count,
       lost_count = :lost_count,
       taken = :taken,
       in_doubt = :in_doubt,
       fence = :fence,
       locked_by = :locked_by,
       not_before = :not_before,
       complete_by = :complete_by,
       wait_by = :wait_by,
       result = :result,
       failure = :failure,
       result_number = :result_number,
       delivered_at = :delivered_at,
       finished_at = :finished_at,
       agent = :agent,
       arguments = :arguments,
       asked = :asked,
       policy = :policy,
       idempotency_key = :idempotency_key,
       pivot = :pivot,
       effect_free = :effect_free,
       compensation = :compensation
 WHERE step_no = :step_no
