-- select_tasks_by_id: tasks by their business ids.
-- Params: task_ids (JSON array).
SELECT {task}
  FROM arriero_task
 WHERE task_id IN (SELECT value FROM json_each(:task_ids))

-- select_submitted: the arguments that a task was submitted with, even if an operator replaced them.
SELECT coalesce(asked, arguments) FROM arriero_body WHERE task_no = :task_no

-- count_open_tasks: number of open tasks of a submitter; no more are counted than limit.
SELECT count(*) FROM (
  SELECT 1 FROM arriero_task INDEXED BY arriero_task_submitter_open
   WHERE submitter = :submitter AND state NOT IN ('processed', 'compensated', 'error')
   LIMIT :limit)

-- select_next_task_no: the number of the next task. No number is used twice, even after a purge.
SELECT max(coalesce((SELECT max(task_no) FROM arriero_task), 0),
           coalesce((SELECT CAST(value AS INTEGER) FROM arriero_meta WHERE name = 'last_task_no'), 0)) + 1

-- select_next_convoy_no: the number of the next convoy. No number is used twice, even after a purge.
SELECT max(coalesce((SELECT max(convoy_no) FROM arriero_convoy), 0),
           coalesce((SELECT CAST(value AS INTEGER) FROM arriero_meta WHERE name = 'last_convoy_no'), 0)) + 1

-- insert_body_of_run: the arguments of a task's next run. What the task was submitted with still answers for its id.
-- Params: task_no, earlier (number of the run before), arguments.
INSERT INTO arriero_body (task_no, arguments, asked)
SELECT :task_no, :arguments, coalesce(asked, arguments) FROM arriero_body WHERE task_no = :earlier
