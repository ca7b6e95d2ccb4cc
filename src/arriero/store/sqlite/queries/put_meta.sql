-- put_meta: keep one setting of the store.
-- Params: name, value.
INSERT INTO arriero_meta (name, value) VALUES (:name, :value)
    ON CONFLICT (name) DO UPDATE SET value = excluded.value
