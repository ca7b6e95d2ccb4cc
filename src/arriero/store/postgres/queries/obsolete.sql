-- select_unnamed_processes: retired processes whose lease had lapsed by an instant, and that no row names; oldest first.
-- The last process to renew stays: the store's clock does not go back before it.
-- Params: before, limit.
SELECT process_no, instance, lease_until, retired, about, room
  FROM {schema}.process AS process
 WHERE retired AND lease_until <= %(before)s
   AND (renewed_at IS NULL OR renewed_at < (SELECT max(renewed_at) FROM {schema}.process))
   AND NOT EXISTS (SELECT 1 FROM {schema}.task WHERE locked_by = process.process_no)
   AND NOT EXISTS (SELECT 1 FROM {schema}.step WHERE locked_by = process.process_no)
   AND NOT EXISTS (SELECT 1 FROM {schema}.lease WHERE holder = process.process_no)
   AND NOT EXISTS (SELECT 1 FROM {schema}.agent_metrics AS counted WHERE counted.process_no = process.process_no)
 ORDER BY process_no
 LIMIT %(limit)s

-- select_code_of_processes: each description of a process, with the number of the last process that has it.
SELECT about, max(process_no) FROM {schema}.process GROUP BY about

-- select_later_process: whether a process start has a higher number. Zero rows: none has.
SELECT 1 FROM {schema}.process WHERE process_no > %(process_no)s LIMIT 1

-- delete_processes: remove process starts, with the numbers of their batches.
-- Params: process_nos (array).
WITH removed AS (
    DELETE FROM {schema}.process WHERE retired AND process_no = ANY(%(process_nos)s) RETURNING process_no
)
DELETE FROM {schema}.writer WHERE process_no IN (SELECT process_no FROM removed)

-- lock_old_leases: leases that had lapsed by an instant, locked until the transaction ends. Those that others have are left out.
-- Params: before, limit.
SELECT name, term, holder, until, owner, duration, since, broken_by, broken_reason
  FROM {schema}.lease WHERE until <= %(before)s AND since <= %(before)s AND name <> 'supervisor' LIMIT %(limit)s
   FOR UPDATE SKIP LOCKED

-- delete_leases: remove leases that this transaction has locked.
-- Params: names (array).
DELETE FROM {schema}.lease WHERE name = ANY(%(names)s::text[])

-- lock_old_breakers: closed breakers that have not changed since an instant, locked until the transaction ends.
-- Params: before, limit.
SELECT app, agent, target, state, fence, policy, changed_at, opened_at, failing_since, closed_at, probe_at,
       ramp_from, wave, granted, succeeded, failed, reason, opened_by, paused_at, paused_by, pause_reason
  FROM {schema}.breaker WHERE state = 'closed' AND paused_at IS NULL AND changed_at <= %(before)s LIMIT %(limit)s
   FOR UPDATE SKIP LOCKED

-- delete_breaker: remove a breaker that this transaction has locked.
DELETE FROM {schema}.breaker WHERE app = %(app)s AND agent = %(agent)s AND target = %(target)s

-- delete_told_alerts: remove alerts of no task that were closed by an instant and that every sink knows.
-- Params: before, limit.
DELETE FROM {schema}.alert WHERE no IN (
    SELECT no FROM {schema}.alert WHERE task_no = 0 AND closed_at <= %(before)s AND next_at IS NULL LIMIT %(limit)s)

-- raise_meta: raise a setting that only grows.
INSERT INTO {schema}.meta (name, value) VALUES (%(name)s, %(value)s)
    ON CONFLICT (name) DO UPDATE SET value = greatest(meta.value::bigint, excluded.value::bigint)::text
