-- begin_ledger: begin a ledger. Zero rows: its id is taken.
INSERT INTO {schema}.ledger (ledger_id, created_at, written_at) VALUES (%(ledger_id)s, %(now)s, %(now)s)
ON CONFLICT (ledger_id) DO NOTHING

-- update_ledger: keep the progress of a ledger.
UPDATE {schema}.ledger
   SET state = %(state)s,
       digest = %(digest)s,
       written = %(written)s,
       accepted = %(accepted)s,
       duplicates = %(duplicates)s,
       aside = %(aside)s,
       let_go = %(let_go)s,
       reached = %(reached)s,
       written_at = %(written_at)s,
       opened_at = %(opened_at)s,
       linked = %(linked)s
 WHERE ledger_no = %(ledger_no)s

-- select_ledger: one ledger.
SELECT ledger_no, ledger_id, state, digest, written, accepted, duplicates, aside, let_go, reached, created_at, written_at, opened_at, linked
  FROM {schema}.ledger
 WHERE ledger_no = %(ledger_no)s

-- select_ledger_by_id: one ledger by its id.
SELECT ledger_no, ledger_id, state, digest, written, accepted, duplicates, aside, let_go, reached, created_at, written_at, opened_at, linked
  FROM {schema}.ledger
 WHERE ledger_id = %(ledger_id)s

-- lock_ledger: one ledger, locked until the transaction ends.
SELECT ledger_no, ledger_id, state, digest, written, accepted, duplicates, aside, let_go, reached, created_at, written_at, opened_at, linked
  FROM {schema}.ledger
 WHERE ledger_no = %(ledger_no)s
   FOR NO KEY UPDATE

-- lock_free_ledger: one ledger, locked until the transaction ends. Zero rows: another transaction has it.
SELECT ledger_no, ledger_id, state, digest, written, accepted, duplicates, aside, let_go, reached, created_at, written_at, opened_at, linked
  FROM {schema}.ledger
 WHERE ledger_no = %(ledger_no)s
   FOR NO KEY UPDATE SKIP LOCKED

-- select_ledgers: ledgers in some states, and those in none that is known, in the order in which they began.
-- Params: states, after (ledger_no), limit.
SELECT ledger_no, ledger_id, state, digest, written, accepted, duplicates, aside, let_go, reached, created_at, written_at, opened_at, linked
  FROM {schema}.ledger
 WHERE ledger_no > %(after)s AND (state = ANY(%(states)s) OR state NOT IN ('writing', 'discarding', 'opened', 'done'))
 ORDER BY ledger_no
 LIMIT %(limit)s

-- select_unfinished_ledgers: ledgers in some states but done, and those in none that is known, in the order in which they began.
-- Params: states, after (ledger_no), limit.
SELECT ledger_no, ledger_id, state, digest, written, accepted, duplicates, aside, let_go, reached, created_at, written_at, opened_at, linked
  FROM {schema}.ledger
 WHERE state <> 'done' AND ledger_no > %(after)s AND (state = ANY(%(states)s) OR state NOT IN ('writing', 'discarding', 'opened', 'done'))
 ORDER BY ledger_no
 LIMIT %(limit)s

-- select_of_ledger: tasks that a ledger has not released, in the order of their lines. The lock on the ledger covers them.
-- Params: after (task_no; earlier rows are not read).
SELECT {task} FROM {schema}.task
 WHERE ledger_no = %(ledger_no)s AND task_no > %(after)s
 ORDER BY ledger_no, task_no
 LIMIT %(limit)s

-- select_open_of_ledgers: for each of some ledgers with a task that has not ended: the first one.
-- BETWEEN: by equality the planner could take the primary key for the order, and read all tasks.
SELECT asked.ledger_no, first.task_no
  FROM unnest(%(ledger_nos)s::bigint[]) AS asked (ledger_no),
       LATERAL (SELECT task_no FROM {schema}.task
                 WHERE from_ledger BETWEEN asked.ledger_no AND asked.ledger_no AND state NOT IN ('processed', 'compensated', 'error')
                 ORDER BY from_ledger, task_no
                 LIMIT 1) AS first

-- count_tasks_of_ledger: number of a ledger's tasks by state, and when the last one of them ended.
SELECT state, count(*), max(ended_at) FROM {schema}.task
 WHERE from_ledger = %(ledger_no)s
 GROUP BY state

-- select_ledger_aside: entries of a ledger that became no tasks, in their order.
-- Params: after (line).
SELECT line, reason FROM {schema}.ledger_aside
 WHERE ledger_no = %(ledger_no)s AND line > %(after)s
 ORDER BY line
 LIMIT %(limit)s
