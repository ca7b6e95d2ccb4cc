-- select_history: history in commit order after a number, up to another.
-- Params: after, until, limit.
SELECT no, history.task_no, coalesce(task_id, convoy.key, ''), history.link, at, actor, events, hash
  FROM arriero_history AS history LEFT JOIN arriero_task AS task ON task.task_no = history.task_no
       LEFT JOIN arriero_convoy AS convoy ON convoy.convoy_no = -history.task_no
 WHERE no > :after AND no <= :until
 ORDER BY no
 LIMIT :limit
