-- select_task: one task.
SELECT {task} FROM {schema}.task WHERE task_no = %(task_no)s

-- select_loaded: tasks with their arguments and convoys.
SELECT {t.task}, body.arguments, {t.convoy}
  FROM {schema}.task AS t LEFT JOIN {schema}.body AS body ON body.task_no = t.task_no
 WHERE t.task_no = ANY(%(task_nos)s)
 ORDER BY t.task_no

-- lock_tasks: some tasks, locked until the transaction ends. Those that another one holds are left out.
SELECT {task} FROM {schema}.task WHERE task_no = ANY(%(task_nos)s) ORDER BY task_no FOR NO KEY UPDATE SKIP LOCKED

-- select_existing: those of some task numbers that exist.
SELECT task_no FROM {schema}.task WHERE task_no = ANY(%(task_nos)s)

-- select_number: a task's number by its business id.
SELECT task_no FROM {schema}.task AS task
 WHERE task_id = %(task_id)s
   AND (ledger_no IS NULL OR (SELECT opened_at IS NOT NULL FROM {schema}.ledger WHERE ledger_no = task.ledger_no))

-- select_body: the arguments of a task's workflow.
SELECT arguments FROM {schema}.body WHERE task_no = %(task_no)s

-- select_claimed: what goes with tasks that a claim names.
-- Rows: task_no, arguments, and the convoy as JSON; null for a task that is in none.
SELECT t.task_no, (SELECT arguments FROM {schema}.body WHERE task_no = t.task_no), {t.convoy}
  FROM {schema}.task AS t WHERE task_no = ANY(%(task_nos)s)

-- update_bodies: replace workflows' arguments; the first ones are kept beside them.
-- Params: rows (JSON array of objects: task_no, arguments).
UPDATE {schema}.body AS body SET asked = coalesce(body.asked, body.arguments), arguments = given.arguments
  FROM json_to_recordset(%(rows)s::json) AS given (task_no bigint, arguments text)
 WHERE body.task_no = given.task_no

-- select_named: id, workflow and incarnation of a task.
SELECT task_id, workflow, incarnation FROM {schema}.task WHERE task_no = %(task_no)s

-- select_ended: those of some tasks that have ended.
SELECT {task} FROM {schema}.task
 WHERE task_no = ANY(%(task_nos)s) AND state IN ('processed', 'compensated', 'error')
 ORDER BY task_no

-- select_claimable: free, due tasks in their order (core.due), with their arguments. They are locked from now on.
-- The first ones of each priority are compared, unlocked, and then locked one after the other until there are enough; those
-- that another process is taking are passed over. A join could change the order, and nothing sorts the locked rows again.
-- Code has version 1 of a workflow unless without_first names that. versions: of other code, each as workflow, space, version.
-- The coalesce keeps the planner from reading all of an index of what is due for each row.
-- Params: apps, workflows (an undo needs no workflow code), versions, without_first, head_start (of a step of priority, in microseconds), compared
-- (rows: those wanted, and some to pass over), probation_from, probation (true: also tasks on probation), apart (tasks to
-- be left alone), since (tasks that were due before are not read).
SELECT {t.task}, (SELECT arguments FROM {schema}.body WHERE task_no = t.task_no), {t.convoy}
  FROM (SELECT waiting.task_no
          FROM (VALUES (9), (8), (7), (6), (5), (4), (3), (2), (1), (0)) AS level (priority),
               LATERAL (SELECT not_before, task_no FROM {schema}.task
                         WHERE locked_by IS NULL AND not_before IS NOT NULL AND paused_at IS NULL
                           AND priority = level.priority AND not_before BETWEEN %(since)s AND %(now)s
                           AND app = ANY(%(apps)s) AND (state = 'compensating' OR workflow = ANY(%(workflows)s) AND {knows_version})
                           AND (lost_count < %(probation_from)s OR %(probation)s)
                           AND NOT task_no = ANY(%(apart)s::bigint[])
                         ORDER BY priority, not_before, task_no
                         LIMIT %(compared)s) AS waiting
         ORDER BY waiting.not_before - level.priority * %(head_start)s::bigint, waiting.task_no
         LIMIT %(compared)s) AS first,
       LATERAL (SELECT * FROM {schema}.task
                 WHERE task_no = first.task_no
                   AND locked_by IS NULL AND paused_at IS NULL AND coalesce(not_before <= %(now)s, false)
                   AND app = ANY(%(apps)s) AND (state = 'compensating' OR workflow = ANY(%(workflows)s) AND {knows_version})
                   AND (lost_count < %(probation_from)s OR %(probation)s)
                   FOR NO KEY UPDATE SKIP LOCKED) AS t
 LIMIT %(limit)s

-- select_claimable_of_share: as select_claimable, of few workflows. The first ones of each workflow, App and priority are
-- compared, so that a backlog of other workflows is not read.
-- Params: as for select_claimable.
SELECT {t.task}, (SELECT arguments FROM {schema}.body WHERE task_no = t.task_no), {t.convoy}
  FROM (SELECT waiting.task_no
          FROM (VALUES (9), (8), (7), (6), (5), (4), (3), (2), (1), (0)) AS level (priority),
               unnest(%(apps)s::text[]) AS whose (app),
               LATERAL ((SELECT of_mine.not_before, of_mine.task_no
                           FROM unnest(%(workflows)s::text[]) AS mine (name),
                                LATERAL (SELECT not_before, task_no FROM {schema}.task
                                          WHERE locked_by IS NULL AND not_before IS NOT NULL AND paused_at IS NULL
                                            AND state <> 'compensating' AND workflow = mine.name AND app = whose.app AND {knows_version}
                                            AND priority = level.priority AND not_before BETWEEN %(since)s AND %(now)s
                                            AND (lost_count < %(probation_from)s OR %(probation)s)
                                            AND NOT task_no = ANY(%(apart)s::bigint[])
                                          ORDER BY workflow, app, priority, not_before, task_no
                                          LIMIT %(compared)s) AS of_mine)
                        UNION ALL
                        (SELECT not_before, task_no FROM {schema}.task
                          WHERE locked_by IS NULL AND not_before IS NOT NULL AND paused_at IS NULL AND state = 'compensating'
                            AND app = whose.app AND priority = level.priority AND not_before BETWEEN %(since)s AND %(now)s
                            AND (lost_count < %(probation_from)s OR %(probation)s)
                            AND NOT task_no = ANY(%(apart)s::bigint[])
                          ORDER BY app, not_before
                          LIMIT %(compared)s)) AS waiting
         ORDER BY waiting.not_before - level.priority * %(head_start)s::bigint, waiting.task_no
         LIMIT %(compared)s) AS first,
       LATERAL (SELECT * FROM {schema}.task
                 WHERE task_no = first.task_no
                   AND locked_by IS NULL AND paused_at IS NULL AND coalesce(not_before <= %(now)s, false)
                   AND app = ANY(%(apps)s) AND (state = 'compensating' OR workflow = ANY(%(workflows)s) AND {knows_version})
                   AND (lost_count < %(probation_from)s OR %(probation)s)
                   FOR NO KEY UPDATE SKIP LOCKED) AS t
 LIMIT %(limit)s

-- select_due: when the earliest task and request is due, and the earliest after now.
-- Params: workflows (an undo needs no workflow code), versions and without_first (see select_claimable), agents, apps, apart and
-- apart_convoys (to be left alone), tasks_from, steps_from (rows that were due before are not read), lease (the Supervisors').
-- Rows: one: tasks_due_at, steps_due_at, next_task_at, next_step_at, look_at (of a convoy), whether nobody holds the lease,
-- each may be null; dead_tasks, dead_steps (dead rows of the tables that no vacuum has removed).
WITH level (priority) AS (VALUES (0), (1), (2), (3), (4), (5), (6), (7), (8), (9)),
     whose (app) AS (SELECT unnest(%(apps)s::text[])),
     mine (name) AS (SELECT unnest(%(workflows)s::text[])),
     agent (name) AS (SELECT unnest(%(agents)s::text[]))
SELECT least((SELECT min(of_workflow.not_before) FROM mine, whose, LATERAL (
                  SELECT not_before FROM {schema}.task
                   WHERE locked_by IS NULL AND not_before IS NOT NULL AND paused_at IS NULL AND state <> 'compensating'
                     AND workflow = mine.name AND app = whose.app AND {knows_version} AND not_before >= %(tasks_from)s AND NOT task_no = ANY(%(apart)s::bigint[])
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
                     AND workflow = mine.name AND app = whose.app AND {knows_version}
                     AND NOT task_no = ANY(%(apart)s::bigint[]) AND not_before > %(now)s
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
       (SELECT holder IS NULL OR until <= %(now)s FROM {schema}.lease WHERE name = %(lease)s),
       pg_stat_get_dead_tuples('{schema}.task'::regclass), pg_stat_get_dead_tuples('{schema}.step'::regclass)

-- select_past_limit: tasks whose own limit has passed.
-- Params: apart (tasks to be left alone).
SELECT task_no FROM {schema}.task
 WHERE complete_by IS NOT NULL AND state IN ('pending', 'processing') AND complete_by <= %(now)s AND paused_at IS NULL
   AND NOT task_no = ANY(%(apart)s::bigint[])
 ORDER BY complete_by, task_no
 LIMIT %(limit)s

-- select_held: tasks that a process holds, or with a step that runs there.
-- Params: apart (tasks to be left alone).
SELECT task_no FROM {schema}.task WHERE locked_by = %(process_no)s AND NOT task_no = ANY(%(apart)s::bigint[])
 UNION
SELECT task_no FROM {schema}.step WHERE locked_by = %(process_no)s AND NOT task_no = ANY(%(apart)s::bigint[])
 ORDER BY task_no
 LIMIT %(limit)s

-- select_news: tasks that a process holds and others recorded something for.
-- Params: since (older ones are not read), apart (tasks to be left alone).
SELECT task_no, revision, unseen_since
  FROM {schema}.task
 WHERE unseen_since IS NOT NULL AND locked_by = %(process_no)s AND unseen_since >= %(since)s
   AND NOT task_no = ANY(%(apart)s::bigint[])
 ORDER BY unseen_since, task_no

-- select_news_again: those of some tasks that a process holds.
-- Params: task_nos (rows that could not be read some time ago).
SELECT task_no, revision FROM {schema}.task
 WHERE task_no = ANY(%(task_nos)s) AND locked_by = %(process_no)s
 ORDER BY task_no

-- select_stuck: held tasks whose news nobody has read since an instant.
-- Params: since, apart (tasks to be left alone), limit.
SELECT task_no FROM {schema}.task
 WHERE unseen_since IS NOT NULL AND unseen_since <= %(since)s AND locked_by IS NOT NULL
   AND NOT task_no = ANY(%(apart)s::bigint[])
 ORDER BY unseen_since, task_no
 LIMIT %(limit)s

-- select_filtered: tasks that match a filter, in the order of submission. The caller filters by the text of a failure.
-- OFFSET 0: see select_steps.
-- Params: after, before (task_no), limit; state, workflow, submitted_before, submitted_since, paused, version and
-- deployment (of its code), snoozed, snoozed_at, app, apps, workflows (arrays), agent, step, failed, tags (JSON object) (null: any).
SELECT {task} FROM {schema}.task AS task
 WHERE task_no > %(after)s
   AND (%(before)s::bigint IS NULL OR task_no < %(before)s)
   AND (ledger_no IS NULL OR ledger_no IN (SELECT ledger_no FROM {schema}.ledger WHERE opened_at IS NOT NULL))
   AND (%(state)s::text IS NULL OR state = %(state)s)
   AND (%(workflow)s::text IS NULL OR workflow = %(workflow)s)
   AND (%(app)s::text IS NULL OR app = %(app)s)
   AND (%(apps)s::text[] IS NULL OR app = ANY(%(apps)s))
   AND (%(workflows)s::text[] IS NULL OR workflow = ANY(%(workflows)s))
   AND (%(submitted_before)s::bigint IS NULL OR submitted_at <= %(submitted_before)s)
   AND (%(submitted_since)s::bigint IS NULL OR submitted_at >= %(submitted_since)s)
   AND (%(failed)s::boolean IS NULL OR (failure IS NOT NULL) = %(failed)s)
   AND (%(paused)s::boolean IS NULL OR (paused_at IS NOT NULL) = %(paused)s)
   AND (%(version)s::text IS NULL OR split_part(coalesce(code_version, '1'), '@', 1) = %(version)s AND started_at IS NOT NULL)
   AND (%(deployment)s::text IS NULL OR split_part(coalesce(code_version, '1'), '@', 2) = %(deployment)s AND started_at IS NOT NULL)
   AND (%(snoozed)s::boolean IS NULL
        OR (ended_at IS NULL AND coalesce(snoozed_until > %(snoozed_at)s::bigint, false)) = %(snoozed)s)
   AND (%(agent)s::text IS NULL OR EXISTS (SELECT 1 FROM {schema}.step AS step
         WHERE step.step_no >= task.task_no << 20 AND step.step_no < (task.task_no + 1) << 20
           AND step.agent = %(agent)s AND step.state <> 'completed' OFFSET 0))
   AND (%(step)s::text IS NULL OR EXISTS (SELECT 1 FROM {schema}.step AS step
         WHERE step.step_no >= task.task_no << 20 AND step.step_no < (task.task_no + 1) << 20
           AND step.name = %(step)s AND step.state <> 'completed' OFFSET 0))
   AND (%(tags)s::json IS NULL OR NOT EXISTS (SELECT 1 FROM json_each_text(%(tags)s::json) AS asked
         WHERE NOT EXISTS (SELECT 1 FROM {schema}.task_tag AS tag
               WHERE tag.name = asked.key AND tag.value = asked.value AND tag.tagged_no = task.task_no OFFSET 0)))
 ORDER BY task_no
 LIMIT %(limit)s

-- count_tasks: number of tasks by state.
SELECT state, count(*)
  FROM {schema}.task
 WHERE (ledger_no IS NULL OR ledger_no IN (SELECT ledger_no FROM {schema}.ledger WHERE opened_at IS NOT NULL))
 GROUP BY state

-- count_versions: number of open tasks, and of held tasks, by the version of their code. It reads the whole table.
-- A message in the batch of another task has no code of its own.
-- Rows: app, workflow, code_version, whether it has begun, state, number, when the oldest was submitted.
SELECT app, workflow, code_version, started_at IS NOT NULL, state, count(*), min(submitted_at)
  FROM {schema}.task
 WHERE state IN ('pending', 'processing', 'compensating', 'error')
   AND (ledger_no IS NULL OR ledger_no IN (SELECT ledger_no FROM {schema}.ledger WHERE opened_at IS NOT NULL))
   AND (batch_no IS NULL OR batch_no = task_no)
 GROUP BY app, workflow, code_version, started_at IS NOT NULL, state

-- count_unsaid: number of open tasks, and of held tasks, without an App's name, by workflow. It reads the whole table.
-- Only a process asks that starts beside another App with code of the same name.
SELECT workflow, count(*) FROM {schema}.task
 WHERE app = '' AND workflow = ANY(%(workflows)s) AND state NOT IN ('processed', 'compensated')
   AND (ledger_no IS NULL OR ledger_no IN (SELECT ledger_no FROM {schema}.ledger WHERE opened_at IS NOT NULL))
 GROUP BY workflow

-- select_edits: payloads of a task that people gave or replaced, in the order of the commits.
SELECT {edit} FROM {schema}.edit WHERE task_no = %(task_no)s ORDER BY link

-- select_late_answers: answers of a task's attempts that came too late to count, in the order of the commits.
SELECT {late_answer} FROM {schema}.late_answer WHERE task_no = %(task_no)s ORDER BY link
