-- insert_ledger_aside: keep why an entry became no task.
-- Params: ledger_no, line, reason.
INSERT INTO arriero_ledger_aside (ledger_no, line, reason) VALUES (:ledger_no, :line, :reason)
