-- update_task: keep a task's row as a command changed it; read in the same transaction.
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
       status_count = :status_count
 WHERE task_no = :task_no
