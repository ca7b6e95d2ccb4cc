-- begin_ledger: a ledger of that id, unless there is one.
-- Params: ledger_id, now.
INSERT INTO {schema}.ledger (ledger_id, created_at, written_at) VALUES (%(ledger_id)s, %(now)s, %(now)s)
ON CONFLICT (ledger_id) DO NOTHING
