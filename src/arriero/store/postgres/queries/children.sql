-- select_children: tasks that are steps of others, by the numbers of those steps.
SELECT {task} FROM {schema}.task WHERE parent_step = ANY(%(step_nos)s::bigint[])

-- select_parents: steps that are tasks, with the task that each belongs to.
-- Rows: step_no; task_id, app, workflow, state, undoing, past_count of the task; name, key, policy of the step.
SELECT step.step_no, task.task_id, task.app, task.workflow, task.state, task.undoing, task.past_count, step.name, step.key, step.policy
  FROM {schema}.step AS step
  JOIN {schema}.task AS task ON task.task_no = step.step_no >> 20
 WHERE step.step_no = ANY(%(step_nos)s::bigint[])

-- lock_child_steps: steps that are to be tasks, kept as they are until the transaction ends.
SELECT {step} FROM {schema}.step WHERE step_no = ANY(%(step_nos)s::bigint[]) ORDER BY step_no FOR SHARE

-- lock_child_step: a step of which no task is to be submitted until the transaction ends.
SELECT step_no FROM {schema}.step WHERE step_no = %(step_no)s FOR NO KEY UPDATE

-- select_unnoticed_children: children that have ended between two instants while their parents wait without news. Rows: step_no,
-- ended_at. A child that was undone with its parent, or that its parent has recorded, is left out where that is cheap to see.
SELECT child.parent_step, child.ended_at
  FROM {schema}.task AS child
  JOIN {schema}.task AS parent ON parent.task_no = child.parent_step >> 20
  JOIN {schema}.step AS step ON step.step_no = child.parent_step
 WHERE child.parent_step IS NOT NULL AND child.ended_at >= %(since)s AND child.ended_at <= %(until)s
   AND child.state IN ('processed', 'compensated')
   AND parent.state IN ('pending', 'processing', 'compensating') AND parent.locked_by IS NULL AND parent.unseen_since IS NULL
   AND (step.state = 'running' OR parent.state = 'compensating')
 ORDER BY child.ended_at, child.task_no
 LIMIT %(limit)s

-- select_forks: forks of a task, by the numbers of its steps; the run of each that has the copies.
SELECT {task} FROM {schema}.task
 WHERE forked_from BETWEEN %(first)s AND %(last)s AND forked_from IS NOT NULL AND run = 1
 ORDER BY task_no
 LIMIT %(limit)s
