-- select_waiting_line: the tasks of a convoy that wait for their turn and stand after a rank and place, in their order,
-- each with its arguments.
-- Params: convoy_no, rank, place, limit.
SELECT task_no, task_id, workflow, state, priority, not_before, locked_by, fence, revision, incarnation,
       failure_count, lost_count, opened_count, open_count, result_count, unseen_since, seed, policy,
       body_hash, submitted_at, started_at, ended_at, complete_by, output, failure, link, head,
       paused_at, undoing, past_count, branched_at, reply_to, status_count,
       convoy_no, place, sequence, rank, turn, due_at, ledger_no, app,
       (SELECT arguments FROM arriero_body WHERE arriero_body.task_no = arriero_task.task_no)
  FROM arriero_task INDEXED BY arriero_task_waiting
 WHERE turn = 'waiting' AND convoy_no = :convoy_no AND (rank, place) > (:rank, :place)
 ORDER BY rank, place
 LIMIT :limit
