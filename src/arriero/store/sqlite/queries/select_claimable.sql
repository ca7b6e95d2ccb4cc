-- select_claimable: free, due tasks of one priority, oldest first, each with its arguments.
-- Found among the oldest of each workflow and App: the backlog of workflows whose code is not here is not read.
-- Params: priority, now, workflows (JSON array; an undo needs no workflow code), probation_from, probation (1: such tasks too),
-- apps (JSON array: whose), apart (JSON array: tasks to be left alone), limit.
WITH whose (app) AS (SELECT value FROM json_each(:apps)),
     mine (name) AS (SELECT value FROM json_each(:workflows)),
     found (due_since, number) AS (
    SELECT of_mine.not_before, of_mine.task_no
      FROM mine CROSS JOIN whose CROSS JOIN arriero_task AS of_mine
        ON of_mine.task_no IN (
           SELECT task_no FROM arriero_task INDEXED BY arriero_task_due
            WHERE locked_by IS NULL AND not_before IS NOT NULL AND paused_at IS NULL AND state <> 'compensating'
              AND workflow = mine.name AND app = whose.app AND priority = :priority AND not_before <= :now
              AND (lost_count < :probation_from OR :probation)
              AND task_no NOT IN (SELECT value FROM json_each(:apart))
            ORDER BY not_before, task_no
            LIMIT :limit)
     UNION ALL
    SELECT undone.not_before, undone.task_no
      FROM whose CROSS JOIN arriero_task AS undone
        ON undone.task_no IN (
           SELECT task_no FROM arriero_task INDEXED BY arriero_task_undo_due
            WHERE locked_by IS NULL AND not_before IS NOT NULL AND paused_at IS NULL AND state = 'compensating'
              AND app = whose.app AND priority = :priority AND not_before <= :now
              AND (lost_count < :probation_from OR :probation)
              AND task_no NOT IN (SELECT value FROM json_each(:apart))
            ORDER BY not_before, task_no
            LIMIT :limit)
     ORDER BY 1, 2
     LIMIT :limit)
SELECT task_no, task_id, workflow, state, priority, not_before, locked_by, fence, revision, incarnation,
       failure_count, lost_count, opened_count, open_count, result_count, unseen_since, seed, policy,
       body_hash, submitted_at, started_at, ended_at, complete_by, output, failure, link, head,
       paused_at, undoing, past_count, branched_at, reply_to, status_count,
       convoy_no, place, sequence, rank, turn, due_at, ledger_no, app,
       (SELECT arguments FROM arriero_body WHERE arriero_body.task_no = arriero_task.task_no)
  FROM found CROSS JOIN arriero_task ON task_no = found.number
 ORDER BY found.due_since, found.number
