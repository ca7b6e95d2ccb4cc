-- put_lease: keep a lease as it now stands.
-- Params: name, term, holder, until.
INSERT INTO arriero_lease (name, term, holder, until) VALUES (:name, :term, :holder, :until)
    ON CONFLICT (name) DO UPDATE SET term = excluded.term, holder = excluded.holder, until = excluded.until
