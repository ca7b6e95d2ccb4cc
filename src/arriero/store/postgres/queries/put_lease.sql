-- put_lease: a lease as it stands now.
-- Params: name, term, holder, until.
UPDATE {schema}.lease SET term = %(term)s, holder = %(holder)s, until = %(until)s WHERE name = %(name)s
