-- select_purgeable: ended tasks that nothing refers to any more.
-- Params: after (task_no), states (JSON array), ended_before, task_nos (JSON array; null: any), limit.
SELECT task_no, link, head
  FROM arriero_task AS task
 WHERE task_no > :after AND state IN (SELECT value FROM json_each(:states)) AND ended_at <= :ended_before AND open_count = 0
   AND coalesce(turn, 'ended') NOT IN ('waiting', 'open')
   AND (sequence IS NULL
        OR sequence < (SELECT expected FROM arriero_convoy AS convoy WHERE convoy.convoy_no = task.convoy_no))
   AND (:task_nos IS NULL OR task_no IN (SELECT value FROM json_each(:task_nos)))
   AND NOT EXISTS (SELECT 1 FROM arriero_status WHERE arriero_status.task_no = task.task_no)
   AND NOT EXISTS (SELECT 1 FROM arriero_alert WHERE arriero_alert.task_no = task.task_no AND next_at IS NOT NULL)
   AND (parent_step IS NULL
        OR NOT EXISTS (SELECT 1 FROM arriero_task AS parent
                        WHERE parent.task_no = task.parent_step >> 20 AND parent.state NOT IN ('processed', 'compensated')))
 ORDER BY task_no
 LIMIT :limit

-- select_untold: those of some tasks with an alert that is still to be delivered.
-- Params: task_nos (JSON array).
SELECT DISTINCT task_no FROM arriero_alert
 WHERE next_at IS NOT NULL AND task_no IN (SELECT value FROM json_each(:task_nos))

-- select_unread: for each task a reply queue with messages that nobody acknowledged.
-- Params: task_nos (JSON array).
SELECT task_no, min(queue) FROM arriero_status WHERE task_no IN (SELECT value FROM json_each(:task_nos)) GROUP BY task_no

-- select_kept_by_ledger: tasks that a ledger has not released.
SELECT task_no FROM arriero_task INDEXED BY arriero_task_ledger WHERE ledger_no = :ledger_no ORDER BY task_no

-- select_kept_in_convoy: one row if a ledger has not released a task of the convoy.
SELECT 1 FROM arriero_task INDEXED BY arriero_task_ledger WHERE ledger_no IS NOT NULL AND convoy_no = :convoy_no LIMIT 1

-- select_of_convoy: all tasks of a convoy, also those that a ledger has not released. It reads all tasks.
SELECT task_no FROM arriero_task WHERE convoy_no = :convoy_no ORDER BY task_no

-- select_naming_ledger: rows of the history that name a ledger: the store's own, and those of its tasks. It reads the whole history.
-- Params: said ("ledger":"ID" as events have it).
SELECT no, task_no, link, hash FROM arriero_history
 WHERE (task_no = 0 OR (task_no > 0 AND link = 1)) AND instr(events, :said) > 0
 ORDER BY no

-- purge_task: the rows of purged tasks.
DELETE FROM arriero_task WHERE task_no IN (SELECT value FROM json_each(:task_nos))

-- purge_body: the rows of purged tasks.
DELETE FROM arriero_body WHERE task_no IN (SELECT value FROM json_each(:task_nos))

-- purge_steps: all rows of purged tasks.
DELETE FROM arriero_step
 WHERE step_no IN (SELECT step.step_no FROM json_each(:task_nos) AS given CROSS JOIN arriero_step AS step
                       ON step.step_no >= given.value << 20 AND step.step_no < (given.value + 1) << 20)

-- purge_history: all rows of purged tasks.
DELETE FROM arriero_history WHERE task_no IN (SELECT value FROM json_each(:task_nos))

-- purge_alerts: all rows of purged tasks.
DELETE FROM arriero_alert WHERE task_no IN (SELECT value FROM json_each(:task_nos))

-- delete_convoy: the row of a purged convoy.
DELETE FROM arriero_convoy WHERE convoy_no = :convoy_no

-- delete_convoy_tail: the row of a purged convoy.
DELETE FROM arriero_convoy_tail WHERE convoy_no = :convoy_no

-- delete_ledger: the row of a discarded ledger.
DELETE FROM arriero_ledger WHERE ledger_no = :ledger_no

-- delete_ledger_aside: the rows of a discarded ledger.
DELETE FROM arriero_ledger_aside WHERE ledger_no = :ledger_no

-- erase_history: remove events and actors from rows; their hashes stay.
-- Params: rows (their no).
UPDATE arriero_history SET actor = '', events = :events WHERE no IN (SELECT value FROM json_each(:rows))

-- select_earlier_runs: the numbers of the runs before the one that has the task's id.
SELECT task_no FROM arriero_task
 WHERE first_no = (SELECT first_no FROM arriero_task WHERE task_no = :task_no AND next_no IS NULL) AND next_no IS NOT NULL
 ORDER BY task_no

-- select_all_runs: the numbers of all runs of tasks that have more than one.
-- Params: task_nos (JSON array; of any of their runs).
SELECT task_no FROM arriero_task
 WHERE first_no IN (SELECT first_no FROM arriero_task WHERE task_no IN (SELECT value FROM json_each(:task_nos)))
