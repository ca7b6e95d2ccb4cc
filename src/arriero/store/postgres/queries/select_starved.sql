-- select_starved: requests nobody took within wait_within.
-- Params: now, apart (tasks to be left alone), limit.
SELECT {step} FROM {schema}.step
 WHERE wait_by IS NOT NULL AND wait_by <= %(now)s AND state = 'pending'
   AND NOT step_no >> 20 = ANY(%(apart)s::bigint[])
 ORDER BY wait_by, step_no
 LIMIT %(limit)s
