-- select_unnamed_processes: retired processes whose lease had lapsed by an instant, and that no row names; oldest first.
-- The newest process start stays, so that no number is given twice.
-- Params: before, limit.
SELECT process_no, instance, lease_until, retired, about, room
  FROM arriero_process AS process
 WHERE retired AND lease_until <= :before AND process_no < (SELECT max(process_no) FROM arriero_process)
   AND NOT EXISTS (SELECT 1 FROM arriero_task WHERE locked_by = process.process_no)
   AND NOT EXISTS (SELECT 1 FROM arriero_step WHERE locked_by = process.process_no)
   AND process_no NOT IN (SELECT holder FROM arriero_lease WHERE holder IS NOT NULL)
   AND process_no NOT IN (SELECT process_no FROM arriero_agent_metrics)
 ORDER BY process_no
 LIMIT :limit

-- select_code_of_processes: each description of a process, with the number of the last process that has it.
SELECT about, max(process_no) FROM arriero_process GROUP BY about

-- select_later_process: whether a process start has a higher number. Zero rows: none has.
SELECT 1 FROM arriero_process WHERE process_no > :process_no LIMIT 1

-- delete_processes: remove process starts.
-- Params: process_nos (JSON array).
DELETE FROM arriero_process WHERE retired AND process_no IN (SELECT value FROM json_each(:process_nos))

-- lock_old_leases: leases that had lapsed by an instant.
-- Params: before, limit.
SELECT name, term, holder, until, owner, duration, since, broken_by, broken_reason
  FROM arriero_lease WHERE until <= :before AND since <= :before AND name <> 'supervisor' LIMIT :limit

-- delete_leases: remove leases.
-- Params: names (JSON array).
DELETE FROM arriero_lease WHERE name IN (SELECT value FROM json_each(:names))

-- lock_old_breakers: closed breakers that have not changed since an instant.
-- Params: before, limit.
SELECT app, agent, target, state, fence, policy, changed_at, opened_at, failing_since, closed_at, probe_at,
       ramp_from, wave, granted, succeeded, failed, reason, opened_by, paused_at, paused_by, pause_reason
  FROM arriero_breaker WHERE state = 'closed' AND paused_at IS NULL AND changed_at <= :before LIMIT :limit

-- delete_breaker: remove a breaker.
DELETE FROM arriero_breaker WHERE app = :app AND agent = :agent AND target = :target

-- delete_told_alerts: remove alerts of no task that were closed by an instant and that every sink knows.
-- Params: before, limit.
DELETE FROM arriero_alert WHERE no IN (
    SELECT no FROM arriero_alert WHERE task_no = 0 AND closed_at <= :before AND next_at IS NULL LIMIT :limit)

-- raise_meta: raise a setting that only grows.
INSERT INTO arriero_meta (name, value) VALUES (:name, :value)
    ON CONFLICT (name) DO UPDATE SET value = max(CAST(value AS INTEGER), CAST(excluded.value AS INTEGER))
