-- insert_task: keep a new task.
-- Params: the task's fields.
INSERT INTO arriero_task (task_no, task_id, workflow, state, priority, not_before, locked_by, fence, revision, incarnation,
       failure_count, lost_count, opened_count, open_count, result_count, unseen_since, seed, policy,
       body_hash, submitted_at, started_at, ended_at, complete_by, output, failure, link, head,
       paused_at, undoing, past_count, branched_at, reply_to, status_count)
VALUES (:task_no, :task_id, :workflow, :state, :priority, :not_before, :locked_by, :fence, :revision,
       :incarnation, :failure_count, :lost_count, :opened_count, :open_count, :result_count,
       :unseen_since, :seed, :policy, :body_hash, :submitted_at, :started_at, :ended_at, :complete_by,
       :output, :failure, :link, :head,
       :paused_at, :undoing, :past_count, :branched_at, :reply_to, :status_count)
