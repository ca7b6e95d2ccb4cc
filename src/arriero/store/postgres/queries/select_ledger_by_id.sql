-- select_ledger_by_id: one ledger by its id.
-- Params: ledger_id.
SELECT ledger_no, ledger_id, state, digest, written, accepted, duplicates, aside, let_go, reached, created_at, written_at, opened_at
  FROM {schema}.ledger
 WHERE ledger_id = %(ledger_id)s
