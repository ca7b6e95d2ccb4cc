-- select_published_of: what is published of a task, and of some of its steps.
-- Params: ordinals (JSON array; 0: the task).
SELECT task_no, ordinal, value, number, at, fence, status_at
  FROM arriero_published
 WHERE task_no = :task_no AND ordinal IN (SELECT value FROM json_each(:ordinals))

-- select_published: what is published of a task and its steps.
SELECT task_no, ordinal, value, number, at, fence, status_at
  FROM arriero_published
 WHERE task_no = :task_no
 ORDER BY ordinal

-- put_published: the latest value of a task or a step.
INSERT INTO arriero_published (task_no, ordinal, value, number, at, fence, status_at)
VALUES (:task_no, :ordinal, :value, :number, :at, :fence, :status_at)
    ON CONFLICT (task_no, ordinal) DO UPDATE
   SET value = excluded.value, number = excluded.number, at = excluded.at, fence = excluded.fence,
       status_at = excluded.status_at

-- delete_progress: the statuses of kind progress of a task are replaced.
-- Params: visible_at (the latest of those that may be read at this instant stays; 0: none does).
DELETE FROM arriero_status
 WHERE task_no = :task_no AND kind = 'progress'
   AND no <> coalesce((SELECT max(no) FROM arriero_status WHERE task_no = :task_no AND kind = 'progress' AND at <= :visible_at), 0)

-- select_versions: how some tasks stand, in numbers that change with each of their commits and each value that they publish.
-- Params: task_nos (JSON array).
SELECT task.task_no, task.link, task.head,
       (SELECT coalesce(sum(number), 0) FROM arriero_published AS one WHERE one.task_no = task.task_no)
  FROM json_each(:task_nos) AS given CROSS JOIN arriero_task AS task ON task.task_no = given.value
