-- select_of_ledger: tasks that a ledger has not let go, in the order of their lines. Whoever has the ledger has them, too.
-- Params: ledger_no, after (task_no: what lies before is not looked through again), limit.
SELECT {task} FROM {schema}.task
 WHERE ledger_no = %(ledger_no)s AND task_no > %(after)s
 ORDER BY ledger_no, task_no
 LIMIT %(limit)s
