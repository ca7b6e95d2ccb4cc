-- select_statuses: the oldest statuses of a queue, its gap mark first.
-- Params: queue, limit.
SELECT no, queue, status.task_no, coalesce(task_id, ''), coalesce(workflow, ''), number, status.incarnation, kind, at, data
  FROM arriero_status AS status LEFT JOIN arriero_task AS task ON task.task_no = status.task_no
 WHERE queue = :queue
 ORDER BY kind <> 'dropped', no
 LIMIT :limit
