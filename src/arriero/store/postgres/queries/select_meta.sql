-- select_meta: a value of the store's own.
-- Params: name.
SELECT value FROM {schema}.meta WHERE name = %(name)s
