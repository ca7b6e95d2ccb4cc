-- purge_chosen: ended tasks that nothing refers to any more, locked until the transaction ends. Those that another one holds stay.
-- Params: after (task_no), states, ended_before, limit.
SELECT task_no, link, head
  FROM {schema}.task AS task
 WHERE task_no > %(after)s AND state = ANY(%(states)s) AND ended_at <= %(ended_before)s AND open_count = 0
   AND coalesce(turn, 'ended') NOT IN ('waiting', 'open')
   AND (sequence IS NULL
        OR sequence < (SELECT expected FROM {schema}.convoy AS convoy WHERE convoy.convoy_no = task.convoy_no))
   AND NOT EXISTS (SELECT 1 FROM {schema}.status AS status WHERE status.task_no = task.task_no)
   AND NOT EXISTS (SELECT 1 FROM {schema}.alert AS alert WHERE alert.task_no = task.task_no AND next_at IS NOT NULL)
   AND (parent_step IS NULL
        OR NOT EXISTS (SELECT 1 FROM {schema}.task AS parent
                        WHERE parent.task_no = task.parent_step >> 20 AND parent.state NOT IN ('processed', 'compensated')))
 ORDER BY task_no
 LIMIT %(limit)s
   FOR UPDATE SKIP LOCKED

-- purge_lock_tasks: some tasks, locked until the transaction ends. Those that another one holds are left out.
SELECT {task} FROM {schema}.task WHERE task_no = ANY(%(task_nos)s) ORDER BY task_no FOR UPDATE SKIP LOCKED

-- purge_lock_convoy: one convoy, locked until the transaction ends.
SELECT {convoy} FROM {schema}.convoy WHERE convoy_no = %(convoy_no)s FOR UPDATE

-- purge_lock_tail: the end of a convoy by its key, locked until the transaction ends: nobody can add to it.
SELECT {tail} FROM {schema}.convoy_tail WHERE key = %(key)s FOR UPDATE

-- select_untold: those of some tasks with an alert that is still to be delivered.
SELECT DISTINCT task_no FROM {schema}.alert WHERE next_at IS NOT NULL AND task_no = ANY(%(task_nos)s)

-- select_unread: for each task a reply queue with messages that nobody acknowledged.
SELECT task_no, min(queue) FROM {schema}.status WHERE task_no = ANY(%(task_nos)s) GROUP BY task_no

-- select_kept_by_ledger: tasks that a ledger has not released.
SELECT task_no FROM {schema}.task WHERE ledger_no = %(ledger_no)s ORDER BY task_no

-- select_kept_in_convoy: one row if a ledger has not released a task of the convoy.
SELECT 1 FROM {schema}.task WHERE ledger_no IS NOT NULL AND convoy_no = %(convoy_no)s LIMIT 1

-- select_of_convoy: all tasks of a convoy, also those that a ledger has not released. It reads all tasks.
SELECT task_no FROM {schema}.task WHERE convoy_no = %(convoy_no)s ORDER BY task_no

-- select_naming_ledger: rows of the history that name a ledger: the store's own, and those of its tasks. It reads the whole history.
-- Params: said ("ledger":"ID" as events have it).
SELECT no, task_no, link, hash FROM {schema}.history
 WHERE (task_no = 0 OR (task_no > 0 AND link = 1)) AND strpos(events, %(said)s) > 0
 ORDER BY no

-- purge_task: the rows of purged tasks.
DELETE FROM {schema}.task WHERE task_no = ANY(%(task_nos)s)

-- purge_body: the rows of purged tasks.
DELETE FROM {schema}.body WHERE task_no = ANY(%(task_nos)s)

-- purge_steps: all rows of purged tasks. OFFSET 0: see select_steps.
DELETE FROM {schema}.step
 WHERE step_no = ANY(ARRAY(
       SELECT s.step_no
         FROM unnest(%(task_nos)s::bigint[]) AS asked (task_no),
              LATERAL (SELECT step_no FROM {schema}.step
                        WHERE step_no >= asked.task_no << 20 AND step_no < (asked.task_no + 1) << 20
                       OFFSET 0) AS s))

-- purge_history: all rows of purged tasks.
DELETE FROM {schema}.history WHERE task_no = ANY(%(task_nos)s)

-- purge_alerts: all rows of purged tasks.
DELETE FROM {schema}.alert WHERE task_no = ANY(%(task_nos)s)

-- delete_convoy: the row of a purged convoy.
DELETE FROM {schema}.convoy WHERE convoy_no = %(convoy_no)s

-- delete_convoy_tail: the row of a purged convoy.
DELETE FROM {schema}.convoy_tail WHERE convoy_no = %(convoy_no)s

-- delete_ledger: the row of a discarded ledger.
DELETE FROM {schema}.ledger WHERE ledger_no = %(ledger_no)s

-- delete_ledger_aside: the rows of a discarded ledger.
DELETE FROM {schema}.ledger_aside WHERE ledger_no = %(ledger_no)s

-- erase_history: remove events and actors from rows; their hashes stay.
-- Params: rows (their no).
UPDATE {schema}.history SET actor = '', events = %(events)s WHERE no = ANY(%(rows)s)

-- select_earlier_runs: the numbers of the runs before the one that has the task's id.
SELECT task_no FROM {schema}.task
 WHERE first_no = (SELECT first_no FROM {schema}.task WHERE task_no = %(task_no)s AND next_no IS NULL) AND next_no IS NOT NULL
 ORDER BY task_no

-- select_all_runs: the numbers of all runs of tasks that have more than one.
-- Params: task_nos (an array; of any of their runs).
SELECT task_no FROM {schema}.task
 WHERE first_no IN (SELECT first_no FROM {schema}.task WHERE task_no = ANY(%(task_nos)s))
