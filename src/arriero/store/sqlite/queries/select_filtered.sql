-- select_filtered: tasks that a filter means, in the order of submission.
-- Params: after, before (task_no), limit; state, workflow, submitted_before, submitted_since, code, text (folded), paused, app, agent, step (null: any).
SELECT task_no, task_id, workflow, state, priority, not_before, locked_by, fence, revision, incarnation,
       failure_count, lost_count, opened_count, open_count, result_count, unseen_since, seed, policy,
       body_hash, submitted_at, started_at, ended_at, complete_by, output, failure, link, head,
       paused_at, undoing, past_count, branched_at, reply_to, status_count,
       convoy_no, place, sequence, rank, turn, due_at, ledger_no, app
  FROM arriero_task AS task
 WHERE task_no > :after
   AND (:before IS NULL OR task_no < :before)
   AND (ledger_no IS NULL OR ledger_no IN (SELECT ledger_no FROM arriero_ledger WHERE opened_at IS NOT NULL))
   AND (:state IS NULL OR state = :state)
   AND (:workflow IS NULL OR workflow = :workflow)
   AND (:app IS NULL OR app = :app)
   AND (:submitted_before IS NULL OR submitted_at <= :submitted_before)
   AND (:submitted_since IS NULL OR submitted_at >= :submitted_since)
   AND (:code IS NULL OR coalesce(CASE WHEN json_valid(failure) THEN json_extract(failure, '$.code') END, '') = :code)
   AND (:text IS NULL OR instr(arriero_folded(coalesce(CASE WHEN json_valid(failure) THEN json_extract(failure, '$.reason') END, '')), :text) > 0)
   AND (:paused IS NULL OR (paused_at IS NOT NULL) = :paused)
   AND (:agent IS NULL OR EXISTS (SELECT 1 FROM arriero_step AS step
         WHERE step.step_no BETWEEN task.task_no << 20 AND (task.task_no << 20) + 1048575
           AND step.agent = :agent AND step.state <> 'completed'))
   AND (:step IS NULL OR EXISTS (SELECT 1 FROM arriero_step AS step
         WHERE step.step_no BETWEEN task.task_no << 20 AND (task.task_no << 20) + 1048575
           AND step.name = :step AND step.state <> 'completed'))
 ORDER BY task_no
 LIMIT :limit
