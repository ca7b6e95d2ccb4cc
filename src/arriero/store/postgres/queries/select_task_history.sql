-- select_task_history: one task's history after a link.
-- Params: task_no, after, limit.
SELECT no, history.task_no, coalesce(task_id, convoy.key, ''), history.link, at, actor, events, hash
  FROM {schema}.history AS history LEFT JOIN {schema}.task AS task ON task.task_no = history.task_no
       LEFT JOIN {schema}.convoy AS convoy ON convoy.convoy_no = -history.task_no
 WHERE history.task_no = %(task_no)s AND history.link > %(after)s
 ORDER BY history.link
 LIMIT %(limit)s
