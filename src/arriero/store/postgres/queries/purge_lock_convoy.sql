-- purge_lock_convoy: what a key is doing, ours until the transaction ends.
-- Params: convoy_no.
SELECT {convoy} FROM {schema}.convoy WHERE convoy_no = %(convoy_no)s FOR UPDATE
