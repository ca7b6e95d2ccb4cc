-- select_tasks: tasks in the order of submission.
-- Params: after (task_no), state, workflow (null: any), limit.
SELECT task_no, task_id, workflow, state, priority, not_before, locked_by, fence, revision, incarnation,
       failure_count, lost_count, opened_count, open_count, result_count, unseen_since, seed, policy,
       body_hash, submitted_at, started_at, ended_at, complete_by, output, failure, link, head
  FROM arriero_task
 WHERE task_no > :after AND (:state IS NULL OR state = :state) AND (:workflow IS NULL OR workflow = :workflow)
 ORDER BY task_no
 LIMIT :limit
