-- select_published_of: what is published of a task, and of some of its steps.
-- Params: ordinals (array; 0: the task).
SELECT task_no, ordinal, value, number, at, fence, status_at
  FROM {schema}.published
 WHERE task_no = %(task_no)s AND ordinal = ANY(%(ordinals)s)

-- select_published: what is published of a task and its steps.
SELECT task_no, ordinal, value, number, at, fence, status_at
  FROM {schema}.published
 WHERE task_no = %(task_no)s
 ORDER BY ordinal

-- put_published: the latest value of a task or a step.
INSERT INTO {schema}.published (task_no, ordinal, value, number, at, fence, status_at)
VALUES (%(task_no)s, %(ordinal)s, %(value)s, %(number)s, %(at)s, %(fence)s, %(status_at)s)
    ON CONFLICT (task_no, ordinal) DO UPDATE
   SET value = excluded.value, number = excluded.number, at = excluded.at, fence = excluded.fence,
       status_at = excluded.status_at

-- delete_progress: the statuses of kind progress of a task are replaced. One that its reader just acknowledges is left alone.
-- Params: visible_at (the latest of those that may be read at this instant stays; 0: none does).
DELETE FROM {schema}.status
 WHERE no IN (
       SELECT no FROM {schema}.status
        WHERE task_no = %(task_no)s AND kind = 'progress'
          AND no <> coalesce((SELECT max(no) FROM {schema}.status
                               WHERE task_no = %(task_no)s AND kind = 'progress' AND at <= %(visible_at)s), 0)
          FOR UPDATE SKIP LOCKED)

-- select_versions: how some tasks stand, in numbers that change with each of their commits and each value that they publish.
-- Params: task_nos (array).
SELECT task.task_no, task.link, task.head,
       (SELECT coalesce(sum(number), 0) FROM {schema}.published AS one WHERE one.task_no = task.task_no)
  FROM {schema}.task AS task
 WHERE task.task_no = ANY(%(task_nos)s)
