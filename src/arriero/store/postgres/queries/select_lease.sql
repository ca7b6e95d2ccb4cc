-- select_lease: a lease, ours until the transaction ends.
-- Params: name.
SELECT name, term, holder, until FROM {schema}.lease WHERE name = %(name)s FOR NO KEY UPDATE
