-- select_convoys: convoys after a number, in the order of their numbers.
-- Params: after, shown (as people see it; null: all that are not idle), limit.
SELECT {convoy} FROM {schema}.convoy
 WHERE convoy_no > %(after)s
   AND convoy_no IN (SELECT convoy_no FROM {schema}.convoy_tail WHERE placed > 0)
   AND CASE WHEN %(shown)s::text IS NULL THEN state <> 'idle' OR parked_at IS NOT NULL
            WHEN %(shown)s = 'parked' THEN parked_at IS NOT NULL
            ELSE state = %(shown)s AND parked_at IS NULL END
 ORDER BY convoy_no
 LIMIT %(limit)s
