-- count_tasks: tasks by state.
SELECT state, count(*)
  FROM {schema}.task
 WHERE (ledger_no IS NULL OR ledger_no IN (SELECT ledger_no FROM {schema}.ledger WHERE opened_at IS NOT NULL))
 GROUP BY state
