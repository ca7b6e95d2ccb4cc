-- select_kept_by_ledger: tasks that a ledger has not let go.
-- Params: ledger_no.
SELECT task_no FROM {schema}.task WHERE ledger_no = %(ledger_no)s ORDER BY task_no
