-- select_steps: all steps of tasks in the order in which they were opened.
-- OFFSET 0: each task's steps are found by their numbers. Without it the planner may expect thousands of steps a task and
-- read the whole table.
SELECT {s.step}
  FROM unnest(%(task_nos)s::bigint[]) AS asked (task_no),
       LATERAL (SELECT * FROM {schema}.step
                 WHERE step_no >= asked.task_no << 20 AND step_no < (asked.task_no + 1) << 20
                OFFSET 0) AS s
 ORDER BY s.step_no

-- select_first_steps: the first steps of tasks, at most ``limit`` of each.
SELECT {s.step}
  FROM unnest(%(task_nos)s::bigint[]) AS asked (task_no),
       LATERAL (SELECT * FROM {schema}.step
                 WHERE step_no >= asked.task_no << 20 AND step_no < (asked.task_no + 1) << 20
                 ORDER BY step_no
                 LIMIT %(limit)s) AS s

-- select_open_steps: pending and running steps of tasks, timers included, in the order in which they were opened. OFFSET 0: see select_steps.
SELECT {s.step}
  FROM unnest(%(task_nos)s::bigint[]) AS asked (task_no),
       LATERAL (SELECT * FROM {schema}.step
                 WHERE step_no >= asked.task_no << 20 AND step_no < (asked.task_no + 1) << 20
                   AND state IN ('pending', 'running')
                OFFSET 0) AS s
 ORDER BY s.step_no

-- select_named_steps: steps by their numbers.
SELECT {step} FROM {schema}.step WHERE step_no = ANY(%(step_nos)s)

-- select_agents: the Agents of steps. Missing: the step is gone, or is a timer.
SELECT step_no, agent FROM {schema}.step WHERE step_no = ANY(%(step_nos)s::bigint[]) AND kind <> 'timer'

-- select_takeable: due requests for one Agent in their order (core.due), with their tasks.
-- The first ones of each priority and App are compared, unlocked, and then locked one after the other until there are enough.
-- Task and step are locked from now on; rows that another process changes are passed over. If the step were not locked,
-- its old version would be found. The coalesce is as in select_claimable. A request without an App comes from a process of
-- an older release; it belongs to its task's App.
-- Params: app (null: only requests without one), names (steps with code here), head_start (of a step of priority, in
-- microseconds), compared (rows: those wanted, and some to pass over), probation_from, probation (steps of tasks on
-- probation: null any, else only of this task), apart (tasks to be left alone), since (requests that were due before are
-- not read), priority_from (none of a lower priority), barred_apps, barred_targets (App, unit separator, target): what
-- breakers let nothing through to, keyless (only requests without keys of limits), barred_retries (true: no later attempts but
-- those of probed), probed (as barred_targets), barred_failed (as barred_targets: no requests that failed in an outage; canary is
-- 0 then).
SELECT {s.step}, {s.t.task}
  FROM (SELECT waiting.step_no
          FROM (VALUES (9), (8), (7), (6), (5), (4), (3), (2), (1), (0)) AS level (priority),
               (VALUES (''), (%(app)s::text)) AS whose (app),
               LATERAL (SELECT step.not_before, step.step_no
                          FROM {schema}.step AS step JOIN {schema}.task AS task ON task.task_no = step.task_no
                         WHERE step.state = 'pending' AND step.kind <> 'timer' AND step.not_before IS NOT NULL
                           AND step.agent = %(agent)s AND step.app = whose.app AND step.priority = level.priority
                           AND step.not_before BETWEEN %(since)s AND %(now)s
                           AND step.name = ANY(%(names)s)
                           AND (step.app <> '' OR task.app = '' OR task.app = %(app)s)
                           AND (task.lost_count < %(probation_from)s OR %(probation)s::bigint IS NULL OR task.task_no = %(probation)s)
                           AND NOT step.task_no = ANY(%(apart)s::bigint[])
                           AND NOT step.app = ANY(%(barred_apps)s::text[])
                           AND NOT step.app || E'\x1f' || step.target = ANY(%(barred_targets)s::text[])
                           AND (NOT %(keyless)s OR step.limit_keys IS NULL)
                           AND (NOT %(barred_retries)s OR NOT step.taken
                                OR step.app || E'\x1f' || step.target = ANY(%(probed)s::text[]))
                           AND (step.canary IS NULL
                                OR NOT step.app || E'\x1f' || step.target = ANY(%(barred_failed)s::text[]))
                         ORDER BY step.agent, step.app, step.priority, step.not_before, step.step_no
                         LIMIT %(compared)s) AS waiting
         WHERE level.priority >= %(priority_from)s
         ORDER BY waiting.not_before - level.priority * %(head_start)s::bigint, waiting.step_no
         LIMIT %(compared)s) AS first,
       LATERAL (SELECT step.*, task AS t
                  FROM {schema}.step AS step JOIN {schema}.task AS task ON task.task_no = step.task_no
                 WHERE step.step_no = first.step_no
                   AND step.state = 'pending' AND step.agent = %(agent)s AND coalesce(step.not_before <= %(now)s, false)
                   AND (task.lost_count < %(probation_from)s OR %(probation)s::bigint IS NULL OR task.task_no = %(probation)s)
                   FOR NO KEY UPDATE OF task, step SKIP LOCKED) AS s
 LIMIT %(limit)s

-- select_movable: due requests for one Agent that another one may take over, in their order, with their tasks; see
-- core.routing. Locked as by select_takeable; of a row that has changed meanwhile it is asked again if it may move.
-- Params: as select_takeable; barred_apps and barred_targets are of the other Agent. closed_apps, closed_targets: what the
-- breakers of their own Agent let nothing through to; it may go at once. waited_since: what was due then may go, too.
SELECT {s.step}, {s.t.task}
  FROM (SELECT waiting.step_no
          FROM (VALUES (9), (8), (7), (6), (5), (4), (3), (2), (1), (0)) AS level (priority),
               (VALUES (''), (%(app)s::text)) AS whose (app),
               LATERAL (SELECT step.not_before, step.step_no
                          FROM {schema}.step AS step JOIN {schema}.task AS task ON task.task_no = step.task_no
                         WHERE step.state = 'pending' AND step.kind <> 'timer' AND step.not_before IS NOT NULL
                           AND step.agent = %(agent)s AND step.app = whose.app AND step.priority = level.priority
                           AND step.not_before BETWEEN %(since)s AND %(now)s
                           AND step.name = ANY(%(names)s)
                           AND (step.app <> '' OR task.app = '' OR task.app = %(app)s)
                           AND (task.lost_count < %(probation_from)s OR %(probation)s::bigint IS NULL OR task.task_no = %(probation)s)
                           AND NOT step.task_no = ANY(%(apart)s::bigint[])
                           AND NOT step.app = ANY(%(barred_apps)s::text[])
                           AND NOT step.app || E'\x1f' || step.target = ANY(%(barred_targets)s::text[])
                           AND (step.routing = 'interchangeable' OR (step.kind = 'step' AND NOT step.taken))
                           AND (step.not_before <= %(waited_since)s OR step.app = ANY(%(closed_apps)s::text[])
                                OR step.app || E'\x1f' || step.target = ANY(%(closed_targets)s::text[]))
                         ORDER BY step.agent, step.app, step.priority, step.not_before, step.step_no
                         LIMIT %(compared)s) AS waiting
         WHERE level.priority >= %(priority_from)s
         ORDER BY waiting.not_before - level.priority * %(head_start)s::bigint, waiting.step_no
         LIMIT %(compared)s) AS first,
       LATERAL (SELECT step.*, task AS t
                  FROM {schema}.step AS step JOIN {schema}.task AS task ON task.task_no = step.task_no
                 WHERE step.step_no = first.step_no
                   AND step.state = 'pending' AND coalesce(step.not_before <= %(now)s, false)
                   AND step.agent = %(agent)s AND (step.routing = 'interchangeable' OR (step.kind = 'step' AND NOT step.taken))
                   AND (task.lost_count < %(probation_from)s OR %(probation)s::bigint IS NULL OR task.task_no = %(probation)s)
                   FOR NO KEY UPDATE OF task, step SKIP LOCKED) AS s
 LIMIT %(limit)s

-- select_expired: running steps whose time has passed, longest first.
-- Params: apart (tasks to be left alone).
SELECT {step} FROM {schema}.step
 WHERE complete_by IS NOT NULL AND complete_by <= %(now)s
   AND NOT step_no >> 20 = ANY(%(apart)s::bigint[])
 ORDER BY complete_by, step_no
 LIMIT %(limit)s

-- select_next_deadline: the earliest deadline of an attempt, a request or a task between two instants.
-- Params: now, until. The end of the range keeps the look short: beyond it lie the index entries of attempts that ended.
-- Rows: one; null: there is none. The rows of tasks that are set apart count: a pass too many harms nothing.
SELECT least(
    (SELECT min(complete_by) FROM {schema}.step
      WHERE complete_by IS NOT NULL AND complete_by > %(now)s AND complete_by <= %(until)s),
    (SELECT min(wait_by) FROM {schema}.step
      WHERE wait_by IS NOT NULL AND state = 'pending' AND wait_by > %(now)s AND wait_by <= %(until)s),
    (SELECT min(complete_by) FROM {schema}.task
      WHERE complete_by IS NOT NULL AND state IN ('pending', 'processing') AND paused_at IS NULL
        AND complete_by > %(now)s AND complete_by <= %(until)s)
)

-- select_starved: requests that nobody took within wait_within.
-- Params: apart (tasks to be left alone).
SELECT {step} FROM {schema}.step
 WHERE wait_by IS NOT NULL AND wait_by <= %(now)s AND state = 'pending'
   AND NOT step_no >> 20 = ANY(%(apart)s::bigint[])
 ORDER BY wait_by, step_no
 LIMIT %(limit)s

-- select_takeable_of_keys: as select_takeable, for each of some keys of limits, in the order of the keys.
-- Timers have no keys, so kind is not asked: without it the planner cannot take step_takeable, which would read all keys through.
-- Params: those of select_takeable but keyless, keys (list), of_each (how many of each key).
SELECT {s.step}, {s.t.task}
  FROM unnest(%(keys)s::text[]) WITH ORDINALITY AS wanted (keys, no),
       LATERAL (SELECT waiting.step_no, waiting.not_before - waiting.priority * %(head_start)s::bigint AS position
                  FROM (VALUES (9), (8), (7), (6), (5), (4), (3), (2), (1), (0)) AS level (priority),
                       (VALUES (''), (%(app)s::text)) AS whose (app),
                       LATERAL (SELECT step.not_before, step.step_no, step.priority
                                  FROM {schema}.step AS step JOIN {schema}.task AS task ON task.task_no = step.task_no
                                 WHERE step.state = 'pending' AND step.limit_keys IS NOT NULL
                                   AND step.limit_keys = wanted.keys AND step.priority = level.priority
                                   AND step.agent = %(agent)s AND step.app = whose.app
                                   AND step.not_before BETWEEN %(since)s AND %(now)s
                                   AND step.name = ANY(%(names)s)
                                   AND (step.app <> '' OR task.app = '' OR task.app = %(app)s)
                                   AND (task.lost_count < %(probation_from)s OR %(probation)s::bigint IS NULL
                                        OR task.task_no = %(probation)s)
                                   AND NOT step.task_no = ANY(%(apart)s::bigint[])
                                   AND NOT step.app = ANY(%(barred_apps)s::text[])
                                   AND NOT step.app || E'\x1f' || step.target = ANY(%(barred_targets)s::text[])
                                   AND (NOT %(barred_retries)s OR NOT step.taken
                                        OR step.app || E'\x1f' || step.target = ANY(%(probed)s::text[]))
                                   AND (step.canary IS NULL
                                        OR NOT step.app || E'\x1f' || step.target = ANY(%(barred_failed)s::text[]))
                                 ORDER BY step.agent, step.app, step.limit_keys, step.priority, step.not_before, step.step_no
                                 LIMIT %(of_each)s) AS waiting
                 WHERE level.priority >= %(priority_from)s
                 ORDER BY position, waiting.step_no
                 LIMIT %(of_each)s) AS first,
       LATERAL (SELECT step.*, task AS t
                  FROM {schema}.step AS step JOIN {schema}.task AS task ON task.task_no = step.task_no
                 WHERE step.step_no = first.step_no
                   AND step.state = 'pending' AND step.agent = %(agent)s AND step.limit_keys = wanted.keys
                   AND coalesce(step.not_before <= %(now)s, false)
                   AND (task.lost_count < %(probation_from)s OR %(probation)s::bigint IS NULL OR task.task_no = %(probation)s)
                   FOR NO KEY UPDATE OF task, step SKIP LOCKED) AS s
 ORDER BY wanted.no, first.position, first.step_no

-- select_running_attempts: attempts of some steps that are under way. Rows: step_no, fence, complete_by.
SELECT step_no, fence, complete_by FROM {schema}.step WHERE step_no = ANY(%(step_nos)s) AND state = 'running' ORDER BY step_no
