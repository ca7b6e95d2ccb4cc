-- update_step: keep a step's row as a command changed it; read in the same transaction.
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
       finished_at = :finished_at
 WHERE step_no = :step_no
