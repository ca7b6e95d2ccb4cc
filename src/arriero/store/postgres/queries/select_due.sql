-- select_due: when the earliest task and request were or will be due, and the earliest after now.
-- Params: now, workflows (an undo needs no workflow code), agents, apps (whose), tasks_from, steps_from (what was due before is not looked at),
-- apart and apart_convoys (to be left alone).
-- Rows: one: tasks_due_at, steps_due_at, next_task_at, next_step_at, look_at (of a convoy), of which each may be null; dead_tasks,
-- dead_steps (rows of the tables that are not cleared away).
WITH level (priority) AS (VALUES (0), (1), (2), (3), (4), (5), (6), (7), (8), (9)),
     whose (app) AS (SELECT unnest(%(apps)s::text[])),
     mine (name) AS (SELECT unnest(%(workflows)s::text[])),
     agent (name) AS (SELECT unnest(%(agents)s::text[]))
SELECT least((SELECT min(of_workflow.not_before) FROM mine, whose, LATERAL (
                  SELECT not_before FROM {schema}.task
                   WHERE locked_by IS NULL AND not_before IS NOT NULL AND paused_at IS NULL AND state <> 'compensating'
                     AND workflow = mine.name AND app = whose.app AND not_before >= %(tasks_from)s AND NOT task_no = ANY(%(apart)s::bigint[])
                   ORDER BY workflow, app, not_before LIMIT 1) AS of_workflow),
             (SELECT min(undone.not_before) FROM whose, LATERAL (
                  SELECT not_before FROM {schema}.task
                   WHERE locked_by IS NULL AND not_before IS NOT NULL AND paused_at IS NULL AND state = 'compensating'
                     AND app = whose.app AND not_before >= %(tasks_from)s AND NOT task_no = ANY(%(apart)s::bigint[])
                   ORDER BY app, not_before LIMIT 1) AS undone)),
       (SELECT min(of_level.not_before) FROM level, agent, whose, LATERAL (
            SELECT not_before FROM {schema}.step
             WHERE state = 'pending' AND kind <> 'timer' AND not_before IS NOT NULL
               AND agent = agent.name AND app = whose.app AND priority = level.priority AND not_before >= %(steps_from)s
               AND NOT step_no >> 20 = ANY(%(apart)s::bigint[])
             ORDER BY agent, app, priority, not_before LIMIT 1) AS of_level),
       least((SELECT min(of_workflow.not_before) FROM mine, whose, LATERAL (
                  SELECT not_before FROM {schema}.task
                   WHERE locked_by IS NULL AND not_before IS NOT NULL AND paused_at IS NULL AND state <> 'compensating'
                     AND workflow = mine.name AND app = whose.app AND NOT task_no = ANY(%(apart)s::bigint[]) AND not_before > %(now)s
                   ORDER BY workflow, app, not_before LIMIT 1) AS of_workflow),
             (SELECT min(undone.not_before) FROM whose, LATERAL (
                  SELECT not_before FROM {schema}.task
                   WHERE locked_by IS NULL AND not_before IS NOT NULL AND paused_at IS NULL AND state = 'compensating'
                     AND app = whose.app AND NOT task_no = ANY(%(apart)s::bigint[]) AND not_before > %(now)s
                   ORDER BY app, not_before LIMIT 1) AS undone)),
       (SELECT min(of_level.not_before) FROM level, agent, whose, LATERAL (
            SELECT not_before FROM {schema}.step
             WHERE state = 'pending' AND kind <> 'timer' AND not_before IS NOT NULL
               AND agent = agent.name AND app = whose.app AND priority = level.priority
               AND NOT step_no >> 20 = ANY(%(apart)s::bigint[]) AND not_before > %(now)s
             ORDER BY agent, app, priority, not_before LIMIT 1) AS of_level),
       (SELECT min(look_at) FROM {schema}.convoy WHERE look_at IS NOT NULL AND NOT convoy_no = ANY(%(apart_convoys)s::bigint[])),
       pg_stat_get_dead_tuples('{schema}.task'::regclass), pg_stat_get_dead_tuples('{schema}.step'::regclass)
