-- select_open_steps: pending and running rows of some tasks, timers included, in the order of opening.
-- OFFSET 0: as in select_steps.
-- Params: task_nos.
SELECT {s.step}
  FROM unnest(%(task_nos)s::bigint[]) AS asked (task_no),
       LATERAL (SELECT * FROM {schema}.step
                 WHERE step_no >= asked.task_no << 20 AND step_no < (asked.task_no + 1) << 20
                   AND state IN ('pending', 'running')
                OFFSET 0) AS s
 ORDER BY s.step_no
