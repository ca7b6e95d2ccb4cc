-- select_term: the term of a lease, which stays so until the transaction ends. No row: another transaction is changing it.
-- Params: name.
SELECT term FROM {schema}.lease WHERE name = %(name)s FOR SHARE SKIP LOCKED
