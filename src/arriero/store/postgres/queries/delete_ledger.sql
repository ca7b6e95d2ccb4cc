-- delete_ledger: of a discarded ledger.
-- Params: ledger_no.
DELETE FROM {schema}.ledger WHERE ledger_no = %(ledger_no)s
