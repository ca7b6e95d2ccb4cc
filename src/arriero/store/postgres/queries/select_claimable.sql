-- select_claimable: free, due tasks with their arguments, highest priority first, then oldest; each is ours from now on.
-- Those that another process is just taking are passed over. No join: it could change the order, which nothing sorts again.
-- Params: now, apps (whose), workflows (an undo needs no workflow code), probation_from, probation (true: such tasks too), apart (tasks to be
-- left alone), limit, since (what was due before is not looked at).
SELECT {t.task}, (SELECT arguments FROM {schema}.body WHERE task_no = t.task_no), {t.convoy}
  FROM (VALUES (9), (8), (7), (6), (5), (4), (3), (2), (1), (0)) AS level (priority),
       LATERAL (SELECT * FROM {schema}.task
                 WHERE locked_by IS NULL AND not_before IS NOT NULL AND paused_at IS NULL
                   AND priority = level.priority AND not_before BETWEEN %(since)s AND %(now)s
                   AND app = ANY(%(apps)s) AND (state = 'compensating' OR workflow = ANY(%(workflows)s))
                   AND (lost_count < %(probation_from)s OR %(probation)s)
                   AND NOT task_no = ANY(%(apart)s::bigint[])
                 ORDER BY priority, not_before, task_no
                 LIMIT %(limit)s
                   FOR NO KEY UPDATE SKIP LOCKED) AS t
 LIMIT %(limit)s
