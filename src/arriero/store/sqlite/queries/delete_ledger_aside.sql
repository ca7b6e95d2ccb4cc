-- delete_ledger_aside: of a discarded ledger.
-- Params: ledger_no.
DELETE FROM arriero_ledger_aside WHERE ledger_no = :ledger_no
