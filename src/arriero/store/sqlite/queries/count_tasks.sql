-- count_tasks: tasks by state.
SELECT state, count(*)
  FROM arriero_task
 WHERE (ledger_no IS NULL OR ledger_no IN (SELECT ledger_no FROM arriero_ledger WHERE opened_at IS NOT NULL))
 GROUP BY state
