-- select_meta: one setting of the store.
-- Params: name.
SELECT value FROM arriero_meta WHERE name = :name
