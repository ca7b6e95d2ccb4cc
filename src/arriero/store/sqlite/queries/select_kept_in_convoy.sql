-- select_kept_in_convoy: whether a ledger keeps a task of a convoy.
-- Params: convoy_no.
SELECT 1 FROM arriero_task INDEXED BY arriero_task_ledger WHERE ledger_no IS NOT NULL AND convoy_no = :convoy_no LIMIT 1
