-- select_ledger: one ledger by its number.
-- Params: ledger_no.
SELECT ledger_no, ledger_id, state, digest, written, accepted, duplicates, aside, let_go, reached, created_at, written_at, opened_at
  FROM arriero_ledger
 WHERE ledger_no = :ledger_no
