-- survey_tasks: paused tasks; those on probation; those free and due, and since when.
-- Params: now, probation_from.
SELECT (SELECT count(*) FROM arriero_task WHERE paused_at IS NOT NULL),
       (SELECT count(*) FROM arriero_task
         WHERE lost_count >= :probation_from AND state IN ('pending', 'processing', 'compensating')),
       (SELECT count(*) FROM arriero_task
         WHERE locked_by IS NULL AND not_before IS NOT NULL AND paused_at IS NULL AND not_before <= :now),
       (SELECT min(not_before) FROM arriero_task
         WHERE locked_by IS NULL AND not_before IS NOT NULL AND paused_at IS NULL AND not_before <= :now),
       (SELECT count(*) FROM arriero_alert WHERE next_at IS NOT NULL),
       (SELECT min(coalesce(closed_at, opened_at)) FROM arriero_alert WHERE next_at IS NOT NULL),
       (SELECT count(*) FROM arriero_task), (SELECT count(*) FROM arriero_history), (SELECT count(*) FROM arriero_status)
