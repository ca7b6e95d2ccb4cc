-- select_takeable: due requests for one Agent, highest priority first, of these those whose App was not said first, then
-- oldest, and their tasks, which are ours from now on. Those that another process is just changing are passed over; the step
-- is locked too, or its old version would do. A request that does not say its App, as a process of an older release leaves
-- it, is of its task's App.
-- Params: agent, app (null: only those whose App was not said), now, names (steps whose code is here), probation_from,
-- probation (steps of tasks on probation: null any, else only of this task), apart (tasks to be left alone), limit,
-- since (what was due before is not looked at).
SELECT {s.step}, {s.t.task}
  FROM (VALUES (9, ''), (9, %(app)s::text), (8, ''), (8, %(app)s), (7, ''), (7, %(app)s), (6, ''), (6, %(app)s),
               (5, ''), (5, %(app)s), (4, ''), (4, %(app)s), (3, ''), (3, %(app)s), (2, ''), (2, %(app)s),
               (1, ''), (1, %(app)s), (0, ''), (0, %(app)s)) AS level (priority, app),
       LATERAL (SELECT step.*, task AS t
                  FROM {schema}.step AS step JOIN {schema}.task AS task ON task.task_no = step.task_no
                 WHERE step.state = 'pending' AND step.kind <> 'timer' AND step.not_before IS NOT NULL
                   AND step.agent = %(agent)s AND step.app = level.app AND step.priority = level.priority AND step.not_before BETWEEN %(since)s AND %(now)s
                   AND step.name = ANY(%(names)s)
                   AND (step.app <> '' OR task.app = '' OR task.app = %(app)s)
                   AND (task.lost_count < %(probation_from)s OR %(probation)s::bigint IS NULL OR task.task_no = %(probation)s)
                   AND NOT step.task_no = ANY(%(apart)s::bigint[])
                 ORDER BY step.agent, step.app, step.priority, step.not_before, step.step_no
                 LIMIT %(limit)s
                   FOR NO KEY UPDATE OF task, step SKIP LOCKED) AS s
 LIMIT %(limit)s
