-- select_claimable: free, due tasks of one priority, oldest first, each with its arguments.
-- Params: priority, now, workflows (JSON array; an undo needs no workflow code), probation_from, probation (1: such tasks too), limit.
SELECT task_no, task_id, workflow, state, priority, not_before, locked_by, fence, revision, incarnation,
       failure_count, lost_count, opened_count, open_count, result_count, unseen_since, seed, policy,
       body_hash, submitted_at, started_at, ended_at, complete_by, output, failure, link, head,
       paused_at, undoing, past_count, branched_at, reply_to, status_count,
       convoy_no, place, sequence, rank, turn, due_at, ledger_no,
       (SELECT arguments FROM arriero_body WHERE arriero_body.task_no = arriero_task.task_no)
  FROM arriero_task INDEXED BY arriero_task_claimable
 WHERE locked_by IS NULL AND not_before IS NOT NULL AND paused_at IS NULL AND priority = :priority AND not_before <= :now
   AND (state = 'compensating' OR workflow IN (SELECT value FROM json_each(:workflows)))
   AND (lost_count < :probation_from OR :probation)
 ORDER BY not_before, task_no
 LIMIT :limit
