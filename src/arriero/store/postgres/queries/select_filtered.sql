-- select_filtered: tasks that a filter means, in the order of submission; what their failure says is looked at by the caller.
-- OFFSET 0: as in select_steps.
-- Params: after, before (task_no), limit; state, workflow, submitted_before, submitted_since, paused, app, agent, step, failed (null: any).
SELECT {task} FROM {schema}.task AS task
 WHERE task_no > %(after)s
   AND (%(before)s::bigint IS NULL OR task_no < %(before)s)
   AND (ledger_no IS NULL OR ledger_no IN (SELECT ledger_no FROM {schema}.ledger WHERE opened_at IS NOT NULL))
   AND (%(state)s::text IS NULL OR state = %(state)s)
   AND (%(workflow)s::text IS NULL OR workflow = %(workflow)s)
   AND (%(app)s::text IS NULL OR app = %(app)s)
   AND (%(submitted_before)s::bigint IS NULL OR submitted_at <= %(submitted_before)s)
   AND (%(submitted_since)s::bigint IS NULL OR submitted_at >= %(submitted_since)s)
   AND (%(failed)s::boolean IS NULL OR (failure IS NOT NULL) = %(failed)s)
   AND (%(paused)s::boolean IS NULL OR (paused_at IS NOT NULL) = %(paused)s)
   AND (%(agent)s::text IS NULL OR EXISTS (SELECT 1 FROM {schema}.step AS step
         WHERE step.step_no >= task.task_no << 20 AND step.step_no < (task.task_no + 1) << 20
           AND step.agent = %(agent)s AND step.state <> 'completed' OFFSET 0))
   AND (%(step)s::text IS NULL OR EXISTS (SELECT 1 FROM {schema}.step AS step
         WHERE step.step_no >= task.task_no << 20 AND step.step_no < (task.task_no + 1) << 20
           AND step.name = %(step)s AND step.state <> 'completed' OFFSET 0))
 ORDER BY task_no
 LIMIT %(limit)s
