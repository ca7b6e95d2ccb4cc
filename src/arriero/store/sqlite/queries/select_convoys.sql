-- select_convoys: convoys after a number, in the order of their numbers.
-- Params: after, shown (as people see it; null: all that are not idle), limit.
SELECT convoy_no, key, ordering, state, open_task, fence, number, from_rank, reached, expected, gap_since, alerted_task,
       look_at, parked_at, parked_why, on_head, on_gap, gap_within, value, created_at, link, head
  FROM arriero_convoy
 WHERE convoy_no > :after
   AND convoy_no IN (SELECT convoy_no FROM arriero_convoy_tail WHERE placed > 0)
   AND CASE WHEN :shown IS NULL THEN state <> 'idle' OR parked_at IS NOT NULL
            WHEN :shown = 'parked' THEN parked_at IS NOT NULL
            ELSE state = :shown AND parked_at IS NULL END
 ORDER BY convoy_no
 LIMIT :limit
