-- survey_tasks: paused tasks; those on probation; those free and due, and since when.
-- Params: now, probation_from.
SELECT (SELECT count(*) FROM {schema}.task WHERE paused_at IS NOT NULL),
       (SELECT count(*) FROM {schema}.task
         WHERE lost_count >= %(probation_from)s AND state IN ('pending', 'processing', 'compensating')),
       (SELECT count(*) FROM {schema}.task
         WHERE locked_by IS NULL AND not_before IS NOT NULL AND paused_at IS NULL AND not_before <= %(now)s),
       (SELECT min(not_before) FROM {schema}.task
         WHERE locked_by IS NULL AND not_before IS NOT NULL AND paused_at IS NULL AND not_before <= %(now)s),
       (SELECT count(*) FROM {schema}.alert WHERE next_at IS NOT NULL),
       (SELECT min(coalesce(closed_at, opened_at)) FROM {schema}.alert WHERE next_at IS NOT NULL),
       (SELECT count(*) FROM {schema}.task), (SELECT count(*) FROM {schema}.history), (SELECT count(*) FROM {schema}.status)
