-- select_history: history after a number.
-- Params: after, limit.
SELECT no, history.task_no, coalesce(task_id, convoy.key, ''), history.link, at, actor, events, hash
  FROM {schema}.history AS history LEFT JOIN {schema}.task AS task ON task.task_no = history.task_no
       LEFT JOIN {schema}.convoy AS convoy ON convoy.convoy_no = -history.task_no
 WHERE no > %(after)s
 ORDER BY no
 LIMIT %(limit)s
