-- select_due_convoys: convoys where it is to be decided anew whose turn it is, longest due first.
-- Params: now, apart (JSON array: convoys to be left alone), limit.
SELECT convoy_no, key, ordering, state, open_task, fence, number, from_rank, reached, expected, gap_since, alerted_task,
       look_at, parked_at, parked_why, on_head, on_gap, gap_within, value, created_at, link, head
  FROM arriero_convoy
 WHERE look_at IS NOT NULL AND look_at <= :now
   AND convoy_no NOT IN (SELECT value FROM json_each(:apart))
 ORDER BY look_at, convoy_no
 LIMIT :limit
