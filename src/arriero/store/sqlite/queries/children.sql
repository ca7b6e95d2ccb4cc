-- select_children: tasks that are steps of others, by the numbers of those steps.
-- Params: step_nos (JSON array).
SELECT task_no, task_id, workflow, state, priority, not_before, locked_by, fence, revision, incarnation,
       failure_count, lost_count, opened_count, open_count, result_count, unseen_since, seed, policy,
       body_hash, submitted_at, started_at, ended_at, complete_by, output, failure, link, head,
       paused_at, undoing, past_count, branched_at, reply_to, status_count,
       convoy_no, place, sequence, rank, turn, due_at, ledger_no, app, trace_context, from_ledger, submitter,
       snoozed_until,
       inbox, tags, submitted_tags, parent_step, depth
  FROM arriero_task INDEXED BY arriero_task_parent_step
 WHERE parent_step IN (SELECT value FROM json_each(:step_nos)) AND parent_step IS NOT NULL
