-- purge_steps: all steps of some tasks.
-- OFFSET 0: as in select_steps.
-- Params: task_nos.
DELETE FROM {schema}.step
 WHERE step_no = ANY(ARRAY(
       SELECT s.step_no
         FROM unnest(%(task_nos)s::bigint[]) AS asked (task_no),
              LATERAL (SELECT step_no FROM {schema}.step
                        WHERE step_no >= asked.task_no << 20 AND step_no < (asked.task_no + 1) << 20
                       OFFSET 0) AS s))
