-- select_expired: running steps whose time has passed, longest first.
-- Params: now, apart (tasks to be left alone), limit.
SELECT {step} FROM {schema}.step
 WHERE complete_by IS NOT NULL AND complete_by <= %(now)s
   AND NOT step_no >> 20 = ANY(%(apart)s::bigint[])
 ORDER BY complete_by, step_no
 LIMIT %(limit)s
