-- count_unsaid: tasks that carry no App's name and are open or in error, of some workflows. It reads the whole table: asked
-- only where a process starts beside another App that has code of the same name.
-- Params: workflows (JSON array).
-- Rows: workflow, count.
SELECT workflow, count(*) FROM arriero_task
 WHERE app = '' AND workflow IN (SELECT value FROM json_each(:workflows))
   AND state NOT IN ('processed', 'compensated')
   AND (ledger_no IS NULL OR ledger_no IN (SELECT ledger_no FROM arriero_ledger WHERE opened_at IS NOT NULL))
 GROUP BY workflow
