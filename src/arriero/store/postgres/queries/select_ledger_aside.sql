-- select_ledger_aside: entries of a ledger that became no tasks, in their order.
-- Params: ledger_no, after (line), limit.
SELECT line, reason FROM {schema}.ledger_aside
 WHERE ledger_no = %(ledger_no)s AND line > %(after)s
 ORDER BY line
 LIMIT %(limit)s
