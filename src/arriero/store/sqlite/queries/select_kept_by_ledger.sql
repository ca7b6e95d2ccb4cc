-- select_kept_by_ledger: tasks that a ledger has not let go.
-- Params: ledger_no.
SELECT task_no FROM arriero_task INDEXED BY arriero_task_ledger WHERE ledger_no = :ledger_no ORDER BY task_no
