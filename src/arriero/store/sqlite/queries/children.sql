-- select_children: tasks that are steps of others, by the numbers of those steps.
-- Params: step_nos (JSON array).
SELECT {task}
  FROM arriero_task INDEXED BY arriero_task_parent_step
 WHERE parent_step IN (SELECT value FROM json_each(:step_nos)) AND parent_step IS NOT NULL

-- select_unnoticed_children: children that have ended between two instants while their parents wait without news. Rows: step_no,
-- ended_at. A child that was undone with its parent, or that its parent has recorded, is left out where that is cheap to see.
SELECT child.parent_step, child.ended_at
  FROM arriero_task AS child INDEXED BY arriero_task_child_ended
  JOIN arriero_task AS parent ON parent.task_no = child.parent_step >> 20
  JOIN arriero_step AS step ON step.step_no = child.parent_step
 WHERE child.parent_step IS NOT NULL AND child.ended_at >= :since AND child.ended_at <= :until
   AND child.state IN ('processed', 'compensated')
   AND parent.state IN ('pending', 'processing', 'compensating') AND parent.locked_by IS NULL AND parent.unseen_since IS NULL
   AND (step.state = 'running' OR parent.state = 'compensating')
 ORDER BY child.ended_at, child.task_no
 LIMIT :limit

-- select_parents: steps that are tasks, with the task that each belongs to.
-- Params: step_nos (JSON array). Rows: step_no; task_id, app, workflow, state, undoing, past_count of the task; name, key, policy
-- of the step.
SELECT step.step_no, task.task_id, task.app, task.workflow, task.state, task.undoing, task.past_count,
       step.name, step.key, step.policy
  FROM arriero_step AS step
  JOIN arriero_task AS task ON task.task_no = step.step_no >> 20
 WHERE step.step_no IN (SELECT value FROM json_each(:step_nos))

-- select_forks: forks of a task, by the numbers of its steps; the run of each that has the copies.
SELECT {task}
  FROM arriero_task INDEXED BY arriero_task_forked
 WHERE forked_from BETWEEN :first AND :last AND forked_from IS NOT NULL AND run = 1
 ORDER BY task_no
 LIMIT :limit
