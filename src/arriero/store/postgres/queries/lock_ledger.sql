-- lock_ledger: one ledger by its number, ours until the transaction ends.
-- Params: ledger_no.
SELECT ledger_no, ledger_id, state, digest, written, accepted, duplicates, aside, let_go, reached, created_at, written_at, opened_at
  FROM {schema}.ledger
 WHERE ledger_no = %(ledger_no)s
   FOR NO KEY UPDATE
