-- look_at_lease: a lease as it stands, which others may change.
-- Params: name.
SELECT name, term, holder, until FROM {schema}.lease WHERE name = %(name)s
