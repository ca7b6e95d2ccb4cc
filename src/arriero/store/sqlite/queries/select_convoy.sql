-- select_convoy: what a key is doing.
-- Params: convoy_no.
SELECT convoy_no, key, ordering, state, open_task, fence, number, from_rank, reached, expected, gap_since, alerted_task,
       look_at, parked_at, parked_why, on_head, on_gap, gap_within, value, created_at, link, head
  FROM arriero_convoy
 WHERE convoy_no = :convoy_no
