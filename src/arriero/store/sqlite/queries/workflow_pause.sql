-- list_workflow_pauses: all workflows that are paused for new tasks.
SELECT app, workflow, state, paused_by, pause_reason, paused_at FROM arriero_workflow_pause ORDER BY app, workflow

-- lock_workflow_pause: one of them. Zero rows: it is not paused.
SELECT app, workflow, state, paused_by, pause_reason, paused_at FROM arriero_workflow_pause
 WHERE app = :app AND workflow = :workflow

-- put_workflow_pause: keep one as it stands now.
INSERT INTO arriero_workflow_pause (app, workflow, state, paused_by, pause_reason, paused_at)
VALUES (:app, :workflow, :state, :paused_by, :pause_reason, :paused_at)
    ON CONFLICT (app, workflow) DO UPDATE SET state = excluded.state, paused_by = excluded.paused_by,
       pause_reason = excluded.pause_reason, paused_at = excluded.paused_at

-- remove_workflow_pause: new tasks of it begin as always.
DELETE FROM arriero_workflow_pause WHERE app = :app AND workflow = :workflow

-- lock_waiting_for_workflow: free tasks that wait for a workflow, by number.
-- Params: apps (JSON array), waits (the not_before of such tasks).
SELECT {task}
  FROM arriero_task INDEXED BY arriero_task_due
 WHERE locked_by IS NULL AND not_before IS NOT NULL AND paused_at IS NULL AND state <> 'compensating'
   AND workflow = :workflow AND app IN (SELECT value FROM json_each(:apps)) AND not_before = :waits
 ORDER BY task_no
 LIMIT :limit

-- has_waiting_for_workflow: whether a free task waits for a workflow. Zero rows: none does.
-- Params: as for lock_waiting_for_workflow.
SELECT 1 FROM arriero_task INDEXED BY arriero_task_due
 WHERE locked_by IS NULL AND not_before IS NOT NULL AND paused_at IS NULL AND state <> 'compensating'
   AND workflow = :workflow AND app IN (SELECT value FROM json_each(:apps)) AND not_before = :waits
 LIMIT 1
