-- purge_lock_tail: the end of a convoy by its key, ours until the transaction ends, also against who would add to it.
-- Params: key.
SELECT {tail} FROM {schema}.convoy_tail WHERE key = %(key)s FOR UPDATE
