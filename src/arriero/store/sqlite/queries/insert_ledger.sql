-- insert_ledger: begin a ledger.
-- Params: ledger_id, now.
INSERT INTO arriero_ledger (ledger_id, state, digest, written, accepted, duplicates, aside, let_go, reached, created_at, written_at)
VALUES (:ledger_id, 'writing', '', 0, 0, 0, 0, 0, 0, :now, :now)
