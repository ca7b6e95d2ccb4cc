-- select_ledger_aside: entries of a ledger that became no tasks, in their order.
-- Params: ledger_no, after (line), limit.
SELECT line, reason FROM arriero_ledger_aside WHERE ledger_no = :ledger_no AND line > :after ORDER BY line LIMIT :limit
