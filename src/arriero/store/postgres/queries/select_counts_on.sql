-- select_counts_on: the next number of a convoy's sequence, as it stands; it only grows.
-- Params: convoy_no.
SELECT expected FROM {schema}.convoy WHERE convoy_no = %(convoy_no)s
