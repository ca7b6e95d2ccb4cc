-- select_tail_by_key: the end of a convoy, by its key.
-- Params: key.
SELECT convoy_no, key, ordering, placed, last_rank, end_rank, asks
  FROM arriero_convoy_tail
 WHERE key = :key
