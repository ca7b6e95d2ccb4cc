-- put_meta: a value of the store's own.
-- Params: name, value.
INSERT INTO {schema}.meta (name, value) VALUES (%(name)s, %(value)s)
    ON CONFLICT (name) DO UPDATE SET value = excluded.value
