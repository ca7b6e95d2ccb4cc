-- select_due: when the earliest task and request were or will be due, and the earliest after now.
-- Params: now, agents (JSON array).
-- Rows: one: tasks_due_at, steps_due_at, next_task_at, next_step_at; each may be null.
WITH priority (of) AS (VALUES (0), (1), (2), (3), (4), (5), (6), (7), (8), (9)),
     agent (name) AS (SELECT value FROM json_each(:agents))
SELECT (SELECT min((SELECT min(not_before) FROM arriero_task
                     WHERE locked_by IS NULL AND not_before IS NOT NULL AND priority = priority.of)) FROM priority),
       (SELECT min((SELECT min(not_before) FROM arriero_step
                     WHERE state = 'pending' AND kind <> 'timer' AND agent = agent.name AND priority = priority.of))
          FROM priority, agent),
       (SELECT min((SELECT min(not_before) FROM arriero_task
                     WHERE locked_by IS NULL AND not_before IS NOT NULL AND priority = priority.of
                       AND not_before > :now)) FROM priority),
       (SELECT min((SELECT min(not_before) FROM arriero_step
                     WHERE state = 'pending' AND kind <> 'timer' AND agent = agent.name AND priority = priority.of
                       AND not_before > :now)) FROM priority, agent)
