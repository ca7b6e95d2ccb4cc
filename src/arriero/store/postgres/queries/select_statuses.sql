-- select_statuses: the oldest statuses of a queue, its gap mark first.
-- Params: queue, limit.
SELECT no, queue, status.task_no, coalesce(task_id, ''), coalesce(workflow, ''), number, status.incarnation, kind, at, data
  FROM {schema}.status AS status LEFT JOIN {schema}.task AS task ON task.task_no = status.task_no
 WHERE queue = %(queue)s
 ORDER BY kind <> 'dropped', no
 LIMIT %(limit)s
