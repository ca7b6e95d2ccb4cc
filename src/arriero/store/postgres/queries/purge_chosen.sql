-- purge_chosen: tasks that may be removed, ours until the transaction ends; what another
-- transaction holds stays.
-- Params: after (task_no), states, ended_before, limit.
SELECT task_no, link, head
  FROM {schema}.task AS task
 WHERE task_no > %(after)s AND state = ANY(%(states)s) AND ended_at <= %(ended_before)s AND open_count = 0
   AND coalesce(turn, 'ended') NOT IN ('waiting', 'open')
   AND (sequence IS NULL
        OR sequence < (SELECT expected FROM {schema}.convoy AS convoy WHERE convoy.convoy_no = task.convoy_no))
   AND NOT EXISTS (SELECT 1 FROM {schema}.status AS status WHERE status.task_no = task.task_no)
   AND NOT EXISTS (SELECT 1 FROM {schema}.alert AS alert WHERE alert.task_no = task.task_no AND next_at IS NOT NULL)
 ORDER BY task_no
 LIMIT %(limit)s
   FOR UPDATE SKIP LOCKED
