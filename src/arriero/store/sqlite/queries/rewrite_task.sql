-- rewrite_task: as update_task, with what only a person's verb changes.
-- Params: the task's fields.
UPDATE arriero_task
   SET state = :state,
       not_before = :not_before,
       locked_by = :locked_by,
       fence = :fence,
       revision = :revision,
       failure_count = :failure_count,
       lost_count = :lost_count,
       opened_count = :opened_count,
       open_count = :open_count,
       result_count = :result_count,
       unseen_since = :unseen_since,
       started_at = :started_at,
       ended_at = :ended_at,
       output = :output,
       failure = :failure,
       link = :link,
       head = :head,
       paused_at = :paused_at,
       undoing = :undoing,
       status_count = :status_count,
       incarnation = :incarnation,
       seed = :seed,
       complete_by = :complete_by,
       past_count = :past_count,
       branched_at = :branched_at
 WHERE task_no = :task_no
