-- add_lease: the row of a lease that nobody has asked for yet.
-- Params: name.
INSERT INTO {schema}.lease (name, term, holder, until) VALUES (%(name)s, 0, NULL, 0) ON CONFLICT (name) DO NOTHING
