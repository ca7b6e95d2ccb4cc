-- select_number: a task's number by its business id.
-- Params: task_id.
SELECT task_no FROM {schema}.task
 WHERE task_id = %(task_id)s
   AND (ledger_no IS NULL OR ledger_no IN (SELECT ledger_no FROM {schema}.ledger WHERE opened_at IS NOT NULL))
