-- select_lease: one lease.
-- Params: name.
SELECT name, term, holder, until FROM arriero_lease WHERE name = :name
