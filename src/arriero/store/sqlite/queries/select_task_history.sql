-- select_task_history: history of one task after a link, up to a number.
-- Params: task_no, after (link), until (no), limit.
SELECT no, history.task_no, coalesce(task_id, convoy.key, ''), history.link, at, actor, events, hash
  FROM arriero_history AS history LEFT JOIN arriero_task AS task ON task.task_no = history.task_no
       LEFT JOIN arriero_convoy AS convoy ON convoy.convoy_no = -history.task_no
 WHERE history.task_no = :task_no AND history.link > :after AND no <= :until
 ORDER BY history.link
 LIMIT :limit
