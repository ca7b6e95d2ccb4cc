-- select_tasks_by_id: one task by its business id.
SELECT task_no, task_id, workflow, state, priority, not_before, locked_by, fence, revision, incarnation,
       failure_count, lost_count, opened_count, open_count, result_count, unseen_since, seed, policy,
       body_hash, submitted_at, started_at, ended_at, complete_by, output, failure, link, head,
       paused_at, undoing, past_count, branched_at, reply_to, status_count,
       convoy_no, place, sequence, rank, turn, due_at, ledger_no, app
  FROM arriero_task
 WHERE task_id IN (SELECT value FROM json_each(:task_ids))
