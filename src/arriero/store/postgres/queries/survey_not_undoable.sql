-- survey_not_undoable: steps without compensation, neither effect_free nor a pivot, of tasks not ended well.
-- OFFSET 0: as in select_steps.
SELECT DISTINCT s.agent, s.name
  FROM {schema}.task AS task,
       LATERAL (SELECT agent, name FROM {schema}.step
                 WHERE step_no >= task.task_no << 20 AND step_no < (task.task_no + 1) << 20
                   AND kind = 'step' AND compensation IS NULL AND NOT effect_free AND NOT pivot
                OFFSET 0) AS s
 WHERE task.state NOT IN ('processed', 'compensated')
 ORDER BY s.agent, s.name
