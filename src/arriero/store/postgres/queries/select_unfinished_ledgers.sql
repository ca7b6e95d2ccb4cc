-- select_unfinished_ledgers: ledgers in some states but done, in the order in which they were begun.
-- Params: states, after (ledger_no), limit.
SELECT ledger_no, ledger_id, state, digest, written, accepted, duplicates, aside, let_go, reached, created_at, written_at, opened_at
  FROM {schema}.ledger
 WHERE state <> 'done' AND ledger_no > %(after)s AND state = ANY(%(states)s)
 ORDER BY ledger_no
 LIMIT %(limit)s
