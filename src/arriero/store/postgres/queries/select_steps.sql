-- select_steps: all rows of some tasks, in the order of opening.
-- OFFSET 0: each task's steps are looked up by their numbers. Without it the planner may join what it believes to be
-- thousands of steps a task, by reading the whole table.
-- Params: task_nos.
SELECT {s.step}
  FROM unnest(%(task_nos)s::bigint[]) AS asked (task_no),
       LATERAL (SELECT * FROM {schema}.step
                 WHERE step_no >= asked.task_no << 20 AND step_no < (asked.task_no + 1) << 20
                OFFSET 0) AS s
 ORDER BY s.step_no
