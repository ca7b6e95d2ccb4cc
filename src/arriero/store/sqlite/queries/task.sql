-- select_task: one task.
SELECT {task}
  FROM arriero_task
 WHERE task_no = :task_no

-- select_body: the arguments of a task's workflow.
SELECT arguments FROM arriero_body WHERE task_no = :task_no

-- update_body: replace a workflow's arguments; the first ones are kept beside them.
-- Params: arguments (JSON text).
UPDATE arriero_body SET asked = coalesce(asked, arguments), arguments = :arguments WHERE task_no = :task_no

-- select_named: id, workflow and incarnation of a task.
SELECT task_id, workflow, incarnation FROM arriero_task WHERE task_no = :task_no

-- select_ended: those of some tasks that have ended.
-- Params: task_nos (JSON array).
SELECT {task}
  FROM arriero_task
 WHERE task_no IN (SELECT value FROM json_each(:task_nos)) AND state IN ('processed', 'compensated', 'error')
 ORDER BY task_no

-- select_claimable: free, due tasks in their order (core.due), each with its arguments.
-- The first ones of each workflow, App and priority are compared, so that a backlog of workflows without code here is not read.
-- Code has version 1 of a workflow unless without_first names that. versions: of other code, each as workflow, space, version.
-- Params: workflows (JSON array; an undo needs no workflow code), versions, without_first and apps (JSON arrays), head_start (of
-- a step of priority, in microseconds), probation_from, probation (1: also tasks on probation), apart (JSON array: tasks to be left alone).
WITH priority (of) AS (VALUES (9), (8), (7), (6), (5), (4), (3), (2), (1), (0)),
     whose (app) AS (SELECT value FROM json_each(:apps)),
     mine (name) AS (SELECT value FROM json_each(:workflows)),
     found (position, number) AS (
    SELECT of_mine.not_before - priority.of * :head_start, of_mine.task_no
      FROM priority CROSS JOIN mine CROSS JOIN whose CROSS JOIN arriero_task AS of_mine
        ON of_mine.task_no IN (
           SELECT task_no FROM arriero_task INDEXED BY arriero_task_due
            WHERE locked_by IS NULL AND not_before IS NOT NULL AND paused_at IS NULL AND state <> 'compensating'
              AND workflow = mine.name AND app = whose.app AND priority = priority.of AND not_before <= :now
              AND (started_at IS NULL OR CASE WHEN code_version IS NULL
                   THEN workflow NOT IN (SELECT value FROM json_each(:without_first))
                   ELSE workflow || ' ' || code_version IN (SELECT value FROM json_each(:versions)) END)
              AND (lost_count < :probation_from OR :probation)
              AND task_no NOT IN (SELECT value FROM json_each(:apart))
            ORDER BY not_before, task_no
            LIMIT :limit)
     UNION ALL
    SELECT undone.not_before - priority.of * :head_start, undone.task_no
      FROM priority CROSS JOIN whose CROSS JOIN arriero_task AS undone
        ON undone.task_no IN (
           SELECT task_no FROM arriero_task INDEXED BY arriero_task_undo_due
            WHERE locked_by IS NULL AND not_before IS NOT NULL AND paused_at IS NULL AND state = 'compensating'
              AND app = whose.app AND priority = priority.of AND not_before <= :now
              AND (lost_count < :probation_from OR :probation)
              AND task_no NOT IN (SELECT value FROM json_each(:apart))
            ORDER BY not_before, task_no
            LIMIT :limit)
     ORDER BY 1, 2
     LIMIT :limit)
SELECT {task},
       (SELECT arguments FROM arriero_body WHERE arriero_body.task_no = arriero_task.task_no)
  FROM found CROSS JOIN arriero_task ON task_no = found.number
 ORDER BY found.position, found.number

-- select_due: when the earliest task and request is due, and the earliest after now.
-- Each is one look into an index, for each workflow, App, Agent and priority: the backlog of others is not read.
-- Params: workflows (an undo needs no workflow code), versions and without_first (as for select_claimable), agents, apps, apart and
-- apart_convoys (to be left alone); JSON arrays. lease: the Supervisors'.
-- Rows: one: tasks_due_at, undos_due_at, steps_due_at, next_task_at, next_undo_at, next_step_at, look_at (of a convoy),
-- whether nobody holds the lease; each may be null.
WITH priority (of) AS (VALUES (0), (1), (2), (3), (4), (5), (6), (7), (8), (9)),
     whose (app) AS (SELECT value FROM json_each(:apps)),
     mine (name) AS (SELECT value FROM json_each(:workflows)),
     agent (name) AS (SELECT value FROM json_each(:agents))
SELECT (SELECT min((SELECT min(not_before) FROM arriero_task INDEXED BY arriero_task_due
                     WHERE locked_by IS NULL AND not_before IS NOT NULL AND paused_at IS NULL AND state <> 'compensating'
                       AND workflow = mine.name AND app = whose.app AND priority = priority.of
                       AND (started_at IS NULL OR CASE WHEN code_version IS NULL
                            THEN workflow NOT IN (SELECT value FROM json_each(:without_first))
                            ELSE workflow || ' ' || code_version IN (SELECT value FROM json_each(:versions)) END)
                       AND task_no NOT IN (SELECT value FROM json_each(:apart))))
          FROM mine, whose, priority),
       (SELECT min((SELECT min(not_before) FROM arriero_task INDEXED BY arriero_task_undo_due
                     WHERE locked_by IS NULL AND not_before IS NOT NULL AND paused_at IS NULL AND state = 'compensating'
                       AND app = whose.app AND priority = priority.of
                       AND task_no NOT IN (SELECT value FROM json_each(:apart))))
          FROM whose, priority),
       (SELECT min((SELECT min(not_before) FROM arriero_step INDEXED BY arriero_step_takeable
                     WHERE state = 'pending' AND kind <> 'timer'
                       AND agent = agent.name AND app = whose.app AND priority = priority.of
                       AND step_no >> 20 NOT IN (SELECT value FROM json_each(:apart))))
          FROM whose, priority, agent),
       (SELECT min((SELECT min(not_before) FROM arriero_task INDEXED BY arriero_task_due
                     WHERE locked_by IS NULL AND not_before IS NOT NULL AND paused_at IS NULL AND state <> 'compensating'
                       AND workflow = mine.name AND app = whose.app AND priority = priority.of
                       AND (started_at IS NULL OR CASE WHEN code_version IS NULL
                            THEN workflow NOT IN (SELECT value FROM json_each(:without_first))
                            ELSE workflow || ' ' || code_version IN (SELECT value FROM json_each(:versions)) END)
                       AND not_before > :now
                       AND task_no NOT IN (SELECT value FROM json_each(:apart))))
          FROM mine, whose, priority),
       (SELECT min((SELECT min(not_before) FROM arriero_task INDEXED BY arriero_task_undo_due
                     WHERE locked_by IS NULL AND not_before IS NOT NULL AND paused_at IS NULL AND state = 'compensating'
                       AND app = whose.app AND priority = priority.of AND not_before > :now
                       AND task_no NOT IN (SELECT value FROM json_each(:apart))))
          FROM whose, priority),
       (SELECT min((SELECT min(not_before) FROM arriero_step INDEXED BY arriero_step_takeable
                     WHERE state = 'pending' AND kind <> 'timer'
                       AND agent = agent.name AND app = whose.app AND priority = priority.of
                       AND step_no >> 20 NOT IN (SELECT value FROM json_each(:apart))
                       AND not_before > :now)) FROM whose, priority, agent),
       (SELECT min(look_at) FROM arriero_convoy INDEXED BY arriero_convoy_due WHERE look_at IS NOT NULL AND convoy_no NOT IN (SELECT value FROM json_each(:apart_convoys))),
       (SELECT holder IS NULL OR until <= :now FROM arriero_lease WHERE name = :lease)

-- select_past_limit: tasks whose own limit has passed.
-- Params: apart (JSON array: tasks to be left alone).
SELECT task_no
  FROM arriero_task INDEXED BY arriero_task_limit
 WHERE complete_by IS NOT NULL AND state IN ('pending', 'processing') AND complete_by <= :now AND paused_at IS NULL
   AND task_no NOT IN (SELECT value FROM json_each(:apart))
 ORDER BY complete_by, task_no
 LIMIT :limit

-- select_held: tasks that a process holds, or with a step that runs there.
-- Params: apart (JSON array: tasks to be left alone).
SELECT task_no FROM arriero_task WHERE locked_by = :process_no AND task_no NOT IN (SELECT value FROM json_each(:apart))
 UNION
SELECT task_no FROM arriero_step WHERE locked_by = :process_no AND task_no NOT IN (SELECT value FROM json_each(:apart))
 ORDER BY task_no
 LIMIT :limit

-- select_news: tasks that a process holds and others recorded something for.
-- Params: apart (JSON array: tasks to be left alone).
SELECT task_no, revision
  FROM arriero_task INDEXED BY arriero_task_unseen
 WHERE unseen_since IS NOT NULL AND locked_by = :process_no
   AND task_no NOT IN (SELECT value FROM json_each(:apart))
 ORDER BY unseen_since, task_no

-- select_news_again: those of some tasks that a process holds.
-- Params: task_nos (JSON array: rows that could not be read some time ago).
SELECT task_no, revision
  FROM arriero_task
 WHERE task_no IN (SELECT value FROM json_each(:task_nos)) AND locked_by = :process_no
 ORDER BY task_no

-- select_stuck: held tasks whose news nobody has read since an instant.
-- Params: since, apart (JSON array: tasks to be left alone), limit.
SELECT task_no
  FROM arriero_task INDEXED BY arriero_task_unseen
 WHERE unseen_since IS NOT NULL AND unseen_since <= :since AND locked_by IS NOT NULL
   AND task_no NOT IN (SELECT value FROM json_each(:apart))
 ORDER BY unseen_since, task_no
 LIMIT :limit

-- select_filtered: tasks that match a filter, in the order of submission.
-- Params: after, before (task_no), limit; state, workflow, submitted_before, submitted_since, code, text (folded), paused,
-- version and deployment (of its code), snoozed, snoozed_at, app, agent, step (null: any); apps, workflows (JSON arrays; null: any); tags (JSON object; null: any).
SELECT {task}
  FROM arriero_task AS task
 WHERE task_no > :after
   AND (:before IS NULL OR task_no < :before)
   AND (ledger_no IS NULL OR ledger_no IN (SELECT ledger_no FROM arriero_ledger WHERE opened_at IS NOT NULL))
   AND (:state IS NULL OR state = :state)
   AND (:workflow IS NULL OR workflow = :workflow)
   AND (:app IS NULL OR app = :app)
   AND (:apps IS NULL OR app IN (SELECT value FROM json_each(:apps)))
   AND (:workflows IS NULL OR workflow IN (SELECT value FROM json_each(:workflows)))
   AND (:submitted_before IS NULL OR submitted_at <= :submitted_before)
   AND (:submitted_since IS NULL OR submitted_at >= :submitted_since)
   AND (:code IS NULL OR coalesce(CASE WHEN json_valid(failure) THEN json_extract(failure, '$.code') END, '') = :code)
   AND (:text IS NULL OR instr(arriero_folded(coalesce(CASE WHEN json_valid(failure) THEN json_extract(failure, '$.reason') END, '')), :text) > 0)
   AND (:paused IS NULL OR (paused_at IS NOT NULL) = :paused)
   AND (:version IS NULL OR substr(coalesce(code_version, '1') || '@', 1, instr(coalesce(code_version, '1') || '@', '@') - 1) = :version
        AND started_at IS NOT NULL)
   AND (:deployment IS NULL OR substr(coalesce(code_version, '1'), instr(coalesce(code_version, '1') || '@', '@') + 1) = :deployment
        AND started_at IS NOT NULL)
   AND (:snoozed IS NULL OR (ended_at IS NULL AND coalesce(snoozed_until > :snoozed_at, 0)) = :snoozed)
   AND (:agent IS NULL OR EXISTS (SELECT 1 FROM arriero_step AS step
         WHERE step.step_no BETWEEN task.task_no << 20 AND (task.task_no << 20) + 1048575
           AND step.agent = :agent AND step.state <> 'completed'))
   AND (:step IS NULL OR EXISTS (SELECT 1 FROM arriero_step AS step
         WHERE step.step_no BETWEEN task.task_no << 20 AND (task.task_no << 20) + 1048575
           AND step.name = :step AND step.state <> 'completed'))
   AND (:tags IS NULL OR NOT EXISTS (SELECT 1 FROM json_each(:tags) AS asked
         WHERE NOT EXISTS (SELECT 1 FROM arriero_task_tag AS tag
               WHERE tag.name = asked.key AND tag.value = asked.value AND tag.tagged_no = task.task_no)))
 ORDER BY task_no
 LIMIT :limit

-- count_tasks: number of tasks by state.
SELECT state, count(*)
  FROM arriero_task
 WHERE (ledger_no IS NULL OR ledger_no IN (SELECT ledger_no FROM arriero_ledger WHERE opened_at IS NOT NULL))
 GROUP BY state

-- count_versions: number of open tasks, and of held tasks, by the version of their code. It reads the whole table.
-- A message in the batch of another task has no code of its own.
-- Rows: app, workflow, code_version, whether it has begun, state, number, when the oldest was submitted.
SELECT app, workflow, code_version, started_at IS NOT NULL, state, count(*), min(submitted_at)
  FROM arriero_task
 WHERE state IN ('pending', 'processing', 'compensating', 'error')
   AND (ledger_no IS NULL OR ledger_no IN (SELECT ledger_no FROM arriero_ledger WHERE opened_at IS NOT NULL))
   AND (batch_no IS NULL OR batch_no = task_no)
 GROUP BY app, workflow, code_version, started_at IS NOT NULL, state

-- count_unsaid: number of open tasks, and of held tasks, without an App's name, by workflow. It reads the whole table.
-- Only a process asks that starts beside another App with code of the same name.
-- Params: workflows (JSON array).
SELECT workflow, count(*) FROM arriero_task
 WHERE app = '' AND workflow IN (SELECT value FROM json_each(:workflows))
   AND state NOT IN ('processed', 'compensated')
   AND (ledger_no IS NULL OR ledger_no IN (SELECT ledger_no FROM arriero_ledger WHERE opened_at IS NOT NULL))
 GROUP BY workflow

-- select_edits: payloads of a task that people gave or replaced, in the order of the commits.
SELECT task_no, link, ordinal, what, incarnation, attempt, at, edited_by, reason, before, after, key_before, key_after
  FROM arriero_edit
 WHERE task_no = :task_no
 ORDER BY link

-- select_late_answers: answers of a task's attempts that came too late to count, in the order of the commits.
SELECT task_no, ordinal, fence, attempt, verdict, outcome, answer, answered_at, complete_by, link
  FROM arriero_late_answer
 WHERE task_no = :task_no
 ORDER BY link
