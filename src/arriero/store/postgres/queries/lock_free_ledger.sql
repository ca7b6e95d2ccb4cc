-- lock_free_ledger: as lock_ledger; no row: another transaction has it.
-- Params: ledger_no.
SELECT ledger_no, ledger_id, state, digest, written, accepted, duplicates, aside, let_go, reached, created_at, written_at, opened_at
  FROM {schema}.ledger
 WHERE ledger_no = %(ledger_no)s
   FOR NO KEY UPDATE SKIP LOCKED
