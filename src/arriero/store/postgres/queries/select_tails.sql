-- select_tails: the ends of some convoys.
-- Params: convoy_nos.
SELECT {tail} FROM {schema}.convoy_tail WHERE convoy_no = ANY(%(convoy_nos)s)
