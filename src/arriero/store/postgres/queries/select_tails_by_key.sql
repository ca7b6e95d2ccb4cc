-- select_tails_by_key: the ends of some convoys.
-- Params: keys.
SELECT {tail} FROM {schema}.convoy_tail WHERE key = ANY(%(keys)s)
