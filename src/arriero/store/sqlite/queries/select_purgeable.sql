-- select_purgeable: ended tasks that nothing refers to any more.
-- Params: after (task_no), states (JSON array), ended_before, task_nos (JSON array; null: any), limit.
SELECT task_no, link, head
  FROM arriero_task AS task
 WHERE task_no > :after AND state IN (SELECT value FROM json_each(:states)) AND ended_at <= :ended_before AND open_count = 0
   AND coalesce(turn, 'ended') NOT IN ('waiting', 'open')
   AND (sequence IS NULL
        OR sequence < (SELECT expected FROM arriero_convoy AS convoy WHERE convoy.convoy_no = task.convoy_no))
   AND (:task_nos IS NULL OR task_no IN (SELECT value FROM json_each(:task_nos)))
   AND NOT EXISTS (SELECT 1 FROM arriero_status WHERE arriero_status.task_no = task.task_no)
   AND NOT EXISTS (SELECT 1 FROM arriero_alert WHERE arriero_alert.task_no = task.task_no AND next_at IS NOT NULL)
 ORDER BY task_no
 LIMIT :limit
