-- select_naming_ledger: rows of the history that name a ledger: of the store's own, and of tasks that came with it. It reads
-- the whole history.
-- Params: said ("ledger":"ID" as events say it).
SELECT no, task_no, link, hash FROM {schema}.history
 WHERE (task_no = 0 OR (task_no > 0 AND link = 1)) AND strpos(events, %(said)s) > 0
 ORDER BY no
