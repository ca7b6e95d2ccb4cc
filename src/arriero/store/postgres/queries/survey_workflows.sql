-- survey_workflows: Apps and workflows of tasks that are free and due; an undo needs none.
-- Params: now.
SELECT DISTINCT app, workflow FROM {schema}.task
 WHERE locked_by IS NULL AND not_before IS NOT NULL AND paused_at IS NULL AND not_before <= %(now)s
   AND state <> 'compensating'
 ORDER BY app, workflow
