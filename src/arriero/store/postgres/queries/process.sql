-- lock_registration: starting processes come one after the other, so that each sees the code of the others.
SELECT 1 FROM {schema}.meta WHERE name = 'store_id' FOR NO KEY UPDATE

-- insert_process: a new process start, and the row that numbers its batches. It and a new epoch wait for each other.
-- Rows: its number and its epoch.
WITH added AS (
    INSERT INTO {schema}.process (instance, lease_until, retired, about)
    VALUES (%(instance)s, %(lease_until)s, false, %(about)s)
    RETURNING process_no
)
INSERT INTO {schema}.writer (process_no, epoch, batch_no)
SELECT process_no, (SELECT value::integer FROM {schema}.meta WHERE name = 'epoch' FOR SHARE), 0 FROM added
RETURNING process_no, epoch

-- describe_process: replace the description of a process, unless it is retired.
-- Params: about (JSON text).
UPDATE {schema}.process SET about = %(about)s WHERE process_no = %(process_no)s AND NOT retired

-- renew_process: prolong a process's lease and keep what it reports, unless it is retired. Zero rows: its epoch is over.
-- Params: room (JSON text, or empty).
-- Rows: true unless it is retired.
UPDATE {schema}.process
   SET lease_until = CASE WHEN retired THEN lease_until ELSE %(lease_until)s END, renewed_at = %(renewed_at)s,
       room = %(room)s
 WHERE process_no = %(process_no)s
   AND EXISTS (SELECT 1 FROM {schema}.writer WHERE process_no = %(process_no)s AND epoch = %(epoch)s)
RETURNING NOT retired

-- retire_process: the process cannot renew its lease any more, which has lapsed by now.
UPDATE {schema}.process SET retired = true, lease_until = least(lease_until, %(now)s) WHERE process_no = %(process_no)s

-- select_process: one process start.
SELECT process_no, instance, lease_until, retired, about, room FROM {schema}.process WHERE process_no = %(process_no)s

-- lock_process: one process start, locked until the transaction ends.
SELECT process_no, instance, lease_until, retired, about, room
  FROM {schema}.process WHERE process_no = %(process_no)s FOR NO KEY UPDATE

-- select_other_processes: processes other than this one that are not retired or that a row still names.
-- The indexes are read from one process number to the next: the cost grows with such processes, not with the rows they hold.
WITH RECURSIVE holds_task (process_no) AS (
    SELECT (SELECT min(locked_by) FROM {schema}.task WHERE locked_by IS NOT NULL)
     UNION ALL
    SELECT (SELECT min(task.locked_by) FROM {schema}.task AS task
             WHERE task.locked_by IS NOT NULL AND task.locked_by > holds_task.process_no)
      FROM holds_task WHERE holds_task.process_no IS NOT NULL
), holds_step (process_no) AS (
    SELECT (SELECT min(locked_by) FROM {schema}.step WHERE locked_by IS NOT NULL)
     UNION ALL
    SELECT (SELECT min(step.locked_by) FROM {schema}.step AS step
             WHERE step.locked_by IS NOT NULL AND step.locked_by > holds_step.process_no)
      FROM holds_step WHERE holds_step.process_no IS NOT NULL
)
SELECT process_no, instance, lease_until, retired, about, room
  FROM {schema}.process
 WHERE process_no <> %(process_no)s
   AND process_no IN (SELECT process_no FROM {schema}.process WHERE NOT retired
                       UNION SELECT process_no FROM holds_task
                       UNION SELECT process_no FROM holds_step)
 ORDER BY process_no

-- select_known_code: the code of all processes that ever started here.
-- Rows: about (JSON text).
SELECT DISTINCT about FROM {schema}.process

-- add_lease: the row of a lease, unless it is there.
INSERT INTO {schema}.lease (name, term, holder, until) VALUES (%(name)s, 0, NULL, 0) ON CONFLICT (name) DO NOTHING

-- select_lease: one lease, locked until the transaction ends.
SELECT name, term, holder, until, owner, duration, since, broken_by, broken_reason
  FROM {schema}.lease WHERE name = %(name)s FOR NO KEY UPDATE

-- lock_lease_to_grant: one lease, locked until the transaction ends. It waits also for transactions that its term guards
-- (``check_term``), which select_lease does not.
SELECT name, term, holder, until, owner, duration, since, broken_by, broken_reason
  FROM {schema}.lease WHERE name = %(name)s FOR UPDATE

-- look_at_lease: one lease, which others may change.
SELECT name, term, holder, until, owner, duration, since, broken_by, broken_reason
  FROM {schema}.lease WHERE name = %(name)s

-- select_leases: all leases by name.
SELECT name, term, holder, until, owner, duration, since, broken_by, broken_reason
  FROM {schema}.lease ORDER BY name COLLATE "C"

-- select_term: the term of a lease, locked against change. Zero rows: another transaction changes it.
SELECT term FROM {schema}.lease WHERE name = %(name)s FOR SHARE SKIP LOCKED

-- put_lease: keep a lease.
UPDATE {schema}.lease
   SET term = %(term)s, holder = %(holder)s, until = %(until)s, owner = %(owner)s, duration = %(duration)s,
       since = %(since)s, broken_by = %(broken_by)s, broken_reason = %(broken_reason)s
 WHERE name = %(name)s

-- check_term: keep a lease from being granted to others until the caller's transaction ends. Renewals do not wait for it.
-- A caller that stands still in its transaction must not bar the next leader for ever: the server ends it after a while.
-- Zero rows: the term is past, or an operator has broken the lease.
SELECT set_config('idle_in_transaction_session_timeout',
                  least(%(milliseconds)s::bigint, nullif(setting.setting::bigint, 0))::text, true)
  FROM {schema}.lease CROSS JOIN pg_catalog.pg_settings AS setting
 WHERE lease.name = %(name)s AND lease.owner = %(owner)s AND lease.term = %(term)s AND lease.broken_by = ''
   AND setting.name = 'idle_in_transaction_session_timeout'
   FOR KEY SHARE OF lease

-- select_leader: term, end and beginning of a lease that somebody holds, and the name of the process; null if its row is gone.
SELECT lease.term, lease.until, lease.since, process.instance
  FROM {schema}.lease AS lease LEFT JOIN {schema}.process AS process ON process.process_no = lease.holder
 WHERE lease.name = %(name)s AND lease.holder IS NOT NULL AND lease.until > %(now)s

-- count_said: how often the store's own history says something, and when it did last. All of it is read.
-- Params: said (as events have it).
SELECT count(*), max(at) FROM {schema}.history WHERE task_no = 0 AND strpos(events, %(said)s) > 0
