-- survey_not_undoable: steps without compensation, neither effect_free nor a pivot, of tasks not ended well.
SELECT DISTINCT step.agent, step.name
  FROM arriero_task AS task JOIN arriero_step AS step
    ON step.step_no BETWEEN task.task_no << 20 AND (task.task_no << 20) + 1048575
 WHERE task.state NOT IN ('processed', 'compensated')
   AND step.kind = 'step' AND step.compensation IS NULL AND NOT step.effect_free AND NOT step.pivot
 ORDER BY step.agent, step.name
