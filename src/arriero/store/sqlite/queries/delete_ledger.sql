-- delete_ledger: of a discarded ledger.
-- Params: ledger_no.
DELETE FROM arriero_ledger WHERE ledger_no = :ledger_no
