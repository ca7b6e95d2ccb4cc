-- select_starved: requests nobody took within wait_within.
-- Params: now, limit.
SELECT {step} FROM {schema}.step
 WHERE wait_by IS NOT NULL AND wait_by <= %(now)s AND state = 'pending'
 ORDER BY wait_by, step_no
 LIMIT %(limit)s
