-- select_due: when the earliest task and request were or will be due, and the earliest after now.
-- Each is one look into an index, for each workflow, App, Agent and priority: what others have waiting is not read.
-- Params: now, workflows (JSON array; an undo needs no workflow code), agents (JSON array), apps (JSON array: whose),
-- apart and apart_convoys (JSON arrays: tasks and convoys to be left alone).
-- Rows: one: tasks_due_at, undos_due_at, steps_due_at, next_task_at, next_undo_at, next_step_at, look_at (of a convoy);
-- each may be null.
WITH priority (of) AS (VALUES (0), (1), (2), (3), (4), (5), (6), (7), (8), (9)),
     whose (app) AS (SELECT value FROM json_each(:apps)),
     mine (name) AS (SELECT value FROM json_each(:workflows)),
     agent (name) AS (SELECT value FROM json_each(:agents))
SELECT (SELECT min((SELECT min(not_before) FROM arriero_task INDEXED BY arriero_task_due
                     WHERE locked_by IS NULL AND not_before IS NOT NULL AND paused_at IS NULL AND state <> 'compensating'
                       AND workflow = mine.name AND app = whose.app AND priority = priority.of
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
                       AND workflow = mine.name AND app = whose.app AND priority = priority.of AND not_before > :now
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
       (SELECT min(look_at) FROM arriero_convoy INDEXED BY arriero_convoy_due WHERE look_at IS NOT NULL AND convoy_no NOT IN (SELECT value FROM json_each(:apart_convoys)))
