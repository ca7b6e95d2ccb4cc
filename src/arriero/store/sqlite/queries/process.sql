-- insert_process: a new process start. Its number is the last row id.
-- Params: about (JSON text).
INSERT INTO arriero_process (instance, lease_until, retired, about) VALUES (:instance, :lease_until, 0, :about)

-- describe_process: replace the description of a process, unless it is retired.
-- Params: about (JSON text).
UPDATE arriero_process SET about = :about WHERE process_no = :process_no AND NOT retired

-- renew_process: prolong a process's lease and keep what it reports, unless it is retired. Row count 0: it is retired.
-- Params: room (JSON text, or empty).
UPDATE arriero_process SET lease_until = :lease_until, room = :room WHERE process_no = :process_no AND NOT retired

-- retire_process: the process cannot renew its lease any more, which has lapsed by now.
UPDATE arriero_process SET retired = 1, lease_until = min(lease_until, :now) WHERE process_no = :process_no

-- retire_all_processes: no process can renew its lease any more.
UPDATE arriero_process SET retired = 1 WHERE NOT retired

-- leave_out_processes: the next process start gets a number after this one.
INSERT INTO arriero_process (process_no, instance, lease_until, retired, about) VALUES (:process_no, :instance, 0, 1, '{}')

-- select_process: one process start.
SELECT process_no, instance, lease_until, retired, about, room FROM arriero_process WHERE process_no = :process_no

-- select_other_processes: processes other than this one that are not retired or that a row still names.
-- The indexes are read from one process number to the next: the cost grows with such processes, not with the rows they hold.
WITH RECURSIVE holds_task (process_no) AS (
    SELECT (SELECT min(locked_by) FROM arriero_task WHERE locked_by IS NOT NULL)
     UNION ALL
    SELECT (SELECT min(task.locked_by) FROM arriero_task AS task
             WHERE task.locked_by IS NOT NULL AND task.locked_by > holds_task.process_no)
      FROM holds_task WHERE holds_task.process_no IS NOT NULL
), holds_step (process_no) AS (
    SELECT (SELECT min(locked_by) FROM arriero_step WHERE locked_by IS NOT NULL)
     UNION ALL
    SELECT (SELECT min(step.locked_by) FROM arriero_step AS step
             WHERE step.locked_by IS NOT NULL AND step.locked_by > holds_step.process_no)
      FROM holds_step WHERE holds_step.process_no IS NOT NULL
)
SELECT process_no, instance, lease_until, retired, about, room
  FROM arriero_process
 WHERE process_no <> :process_no
   AND process_no IN (SELECT process_no FROM arriero_process INDEXED BY arriero_process_alive WHERE NOT retired
                       UNION SELECT process_no FROM holds_task WHERE process_no IS NOT NULL
                       UNION SELECT process_no FROM holds_step WHERE process_no IS NOT NULL)
 ORDER BY process_no

-- select_known_code: the code of all processes that ever started here.
-- Rows: about (JSON text).
SELECT DISTINCT about FROM arriero_process

-- look_at_lease: one lease.
SELECT name, term, holder, until, owner, duration, since, broken_by, broken_reason
  FROM arriero_lease WHERE name = :name

-- select_leases: all leases by name.
SELECT name, term, holder, until, owner, duration, since, broken_by, broken_reason FROM arriero_lease ORDER BY name

-- put_lease: keep a lease.
INSERT INTO arriero_lease (name, term, holder, until, owner, duration, since, broken_by, broken_reason)
VALUES (:name, :term, :holder, :until, :owner, :duration, :since, :broken_by, :broken_reason)
    ON CONFLICT (name) DO UPDATE SET term = excluded.term, holder = excluded.holder, until = excluded.until,
       owner = excluded.owner, duration = excluded.duration, since = excluded.since, broken_by = excluded.broken_by,
       broken_reason = excluded.broken_reason

-- select_leader: term, end and beginning of a lease that somebody holds, and the name of the process; null if its row is gone.
SELECT lease.term, lease.until, lease.since, process.instance
  FROM arriero_lease AS lease LEFT JOIN arriero_process AS process ON process.process_no = lease.holder
 WHERE lease.name = :name AND lease.holder IS NOT NULL AND lease.until > :now

-- count_said: how often the store's own history says something, and when it did last. All of it is read.
-- Params: said (as events have it).
SELECT count(*), max(at) FROM arriero_history WHERE task_no = 0 AND instr(events, :said) > 0
