-- list_workflow_pauses: all workflows that are paused for new tasks.
SELECT app, workflow, state, paused_by, pause_reason, paused_at FROM {schema}.workflow_pause ORDER BY app, workflow

-- lock_engines: wait for the batches of all processes that have begun, and bar others until the transaction ends.
-- The rows are changed, so that under SERIALIZABLE one that waited reads anew what this transaction writes.
UPDATE {schema}.writer AS writer SET batch_no = writer.batch_no
  FROM (SELECT process_no FROM {schema}.writer ORDER BY process_no FOR UPDATE) AS locked
 WHERE writer.process_no = locked.process_no

-- lock_submitters: the same of submissions that let a task begin (select_beginner).
SELECT process_no FROM {schema}.process WHERE NOT retired ORDER BY process_no FOR UPDATE

-- limit_lock_wait: how long the next statements of this transaction wait for a lock.
-- Params: lock (milliseconds).
SELECT set_config('lock_timeout', %(lock)s, true)

-- list_busy_processes: processes with an open batch or submission, which others must wait for.
-- Rows: process_no, instance. What this locks is free again when its transaction ends.
WITH free AS (SELECT process_no FROM {schema}.writer FOR UPDATE SKIP LOCKED),
     idle AS (SELECT process_no FROM {schema}.process WHERE NOT retired FOR UPDATE SKIP LOCKED)
SELECT process.process_no, process.instance FROM {schema}.process AS process
 WHERE (NOT process.retired AND NOT EXISTS (SELECT 1 FROM idle WHERE idle.process_no = process.process_no))
    OR (EXISTS (SELECT 1 FROM {schema}.writer AS writer WHERE writer.process_no = process.process_no)
        AND NOT EXISTS (SELECT 1 FROM free WHERE free.process_no = process.process_no))
 ORDER BY process.process_no

-- lock_workflow_pause: one of the paused workflows, locked until the transaction ends. Zero rows: it is not paused.
SELECT app, workflow, state, paused_by, pause_reason, paused_at FROM {schema}.workflow_pause
 WHERE app = %(app)s AND workflow = %(workflow)s
   FOR UPDATE

-- put_workflow_pause: keep one as it stands now.
INSERT INTO {schema}.workflow_pause (app, workflow, state, paused_by, pause_reason, paused_at)
VALUES (%(app)s, %(workflow)s, %(state)s, %(paused_by)s, %(pause_reason)s, %(paused_at)s)
    ON CONFLICT (app, workflow) DO UPDATE SET state = excluded.state, paused_by = excluded.paused_by,
       pause_reason = excluded.pause_reason, paused_at = excluded.paused_at

-- remove_workflow_pause: new tasks of it begin as always.
DELETE FROM {schema}.workflow_pause WHERE app = %(app)s AND workflow = %(workflow)s

-- lock_waiting_for_workflow: free tasks that wait for a workflow, by number, locked until the transaction ends. Those that
-- another transaction has are left out.
-- Params: apps, waits (the not_before of such tasks).
SELECT {task} FROM {schema}.task
 WHERE locked_by IS NULL AND not_before IS NOT NULL AND paused_at IS NULL AND state <> 'compensating'
   AND workflow = %(workflow)s AND app = ANY(%(apps)s) AND not_before = %(waits)s
 ORDER BY task_no
 LIMIT %(limit)s
   FOR NO KEY UPDATE SKIP LOCKED

-- has_waiting_for_workflow: whether a free task waits for a workflow. Zero rows: none does.
-- Params: as for lock_waiting_for_workflow.
SELECT 1 FROM {schema}.task
 WHERE locked_by IS NULL AND not_before IS NOT NULL AND paused_at IS NULL AND state <> 'compensating'
   AND workflow = %(workflow)s AND app = ANY(%(apps)s) AND not_before = %(waits)s
 LIMIT 1
