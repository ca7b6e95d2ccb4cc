-- select_expired: running steps whose time has passed, longest first.
-- Params: now, limit.
SELECT {step} FROM {schema}.step
 WHERE complete_by IS NOT NULL AND complete_by <= %(now)s
 ORDER BY complete_by, step_no
 LIMIT %(limit)s
