-- select_unfinished_ledgers: ledgers in some states but done, in the order in which they were begun.
-- Params: states (JSON array), after (ledger_no), limit.
SELECT ledger_no, ledger_id, state, digest, written, accepted, duplicates, aside, let_go, reached, created_at, written_at, opened_at
  FROM arriero_ledger INDEXED BY arriero_ledger_unfinished
 WHERE state <> 'done' AND ledger_no > :after AND state IN (SELECT value FROM json_each(:states))
 ORDER BY ledger_no
 LIMIT :limit
