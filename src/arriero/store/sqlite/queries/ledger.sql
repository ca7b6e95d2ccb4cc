-- insert_ledger: begin a ledger.
INSERT INTO arriero_ledger (ledger_id, state, digest, written, accepted, duplicates, aside, let_go, reached, created_at, written_at)
VALUES (:ledger_id, 'writing', '', 0, 0, 0, 0, 0, 0, :now, :now)

-- update_ledger: keep the progress of a ledger.
UPDATE arriero_ledger
   SET state = :state,
       digest = :digest,
       written = :written,
       accepted = :accepted,
       duplicates = :duplicates,
       aside = :aside,
       let_go = :let_go,
       reached = :reached,
       written_at = :written_at,
       opened_at = :opened_at,
       linked = :linked
 WHERE ledger_no = :ledger_no

-- select_ledger: one ledger.
SELECT ledger_no, ledger_id, state, digest, written, accepted, duplicates, aside, let_go, reached, created_at, written_at, opened_at, linked
  FROM arriero_ledger
 WHERE ledger_no = :ledger_no

-- select_ledger_by_id: one ledger by its id.
SELECT ledger_no, ledger_id, state, digest, written, accepted, duplicates, aside, let_go, reached, created_at, written_at, opened_at, linked
  FROM arriero_ledger
 WHERE ledger_id = :ledger_id

-- select_ledgers: ledgers in some states, and those in none that is known, in the order in which they began.
-- Params: states (JSON array), after (ledger_no).
SELECT ledger_no, ledger_id, state, digest, written, accepted, duplicates, aside, let_go, reached, created_at, written_at, opened_at, linked
  FROM arriero_ledger
 WHERE ledger_no > :after
   AND (state IN (SELECT value FROM json_each(:states)) OR state NOT IN ('writing', 'discarding', 'opened', 'done'))
 ORDER BY ledger_no
 LIMIT :limit

-- select_unfinished_ledgers: ledgers in some states but done, and those in none that is known, in the order in which they began.
-- Params: states (JSON array), after (ledger_no).
SELECT ledger_no, ledger_id, state, digest, written, accepted, duplicates, aside, let_go, reached, created_at, written_at, opened_at, linked
  FROM arriero_ledger INDEXED BY arriero_ledger_unfinished
 WHERE state <> 'done' AND ledger_no > :after
   AND (state IN (SELECT value FROM json_each(:states)) OR state NOT IN ('writing', 'discarding', 'opened', 'done'))
 ORDER BY ledger_no
 LIMIT :limit

-- select_of_ledger: tasks that a ledger has not released, in the order of their lines.
-- Params: after (task_no).
SELECT {task}
  FROM arriero_task INDEXED BY arriero_task_ledger
 WHERE ledger_no = :ledger_no AND task_no > :after
 ORDER BY task_no
 LIMIT :limit

-- select_open_of_ledgers: for each of some ledgers with a task that has not ended: the first one.
-- Params: ledger_nos (JSON array).
SELECT from_ledger, min(task_no) FROM arriero_task INDEXED BY arriero_task_from_ledger_open
 WHERE from_ledger IN (SELECT value FROM json_each(:ledger_nos)) AND state NOT IN ('processed', 'compensated', 'error')
 GROUP BY from_ledger

-- count_tasks_of_ledger: number of a ledger's tasks by state, and when the last one of them ended.
SELECT state, count(*), max(ended_at) FROM arriero_task INDEXED BY arriero_task_from_ledger
 WHERE from_ledger = :ledger_no
 GROUP BY state

-- insert_ledger_aside: keep the reason why an entry became no task.
INSERT INTO arriero_ledger_aside (ledger_no, line, reason) VALUES (:ledger_no, :line, :reason)

-- select_ledger_aside: entries of a ledger that became no tasks, in their order.
-- Params: after (line).
SELECT line, reason FROM arriero_ledger_aside WHERE ledger_no = :ledger_no AND line > :after ORDER BY line LIMIT :limit
