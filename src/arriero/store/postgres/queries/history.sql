-- select_history: history in the order of commits.
-- Params: after (no), limit.
SELECT no, history.task_no, coalesce(task_id, convoy.key, ''), history.link, at, actor, events, hash
  FROM {schema}.history AS history LEFT JOIN {schema}.task AS task ON task.task_no = history.task_no
       LEFT JOIN {schema}.convoy AS convoy ON convoy.convoy_no = -history.task_no
 WHERE no > %(after)s
 ORDER BY no
 LIMIT %(limit)s

-- select_task_history: history of one task.
-- Params: after (link), limit.
SELECT no, history.task_no, coalesce(task_id, convoy.key, ''), history.link, at, actor, events, hash
  FROM {schema}.history AS history LEFT JOIN {schema}.task AS task ON task.task_no = history.task_no
       LEFT JOIN {schema}.convoy AS convoy ON convoy.convoy_no = -history.task_no
 WHERE history.task_no = %(task_no)s AND history.link > %(after)s
 ORDER BY history.link
 LIMIT %(limit)s

-- select_people_commits: events of a task's commits from an instant on that tell of people's verbs, the newest first.
SELECT events FROM {schema}.history
 WHERE task_no = %(task_no)s AND at >= %(since)s AND position('"operator.' IN events) > 0
 ORDER BY link DESC

-- select_history_last: the last commits, newest first.
SELECT task_no, at, events FROM {schema}.history ORDER BY no DESC LIMIT %(limit)s

-- select_history_end: the last number of the history; 0 when it is empty.
SELECT coalesce(max(no), 0) FROM {schema}.history

-- select_acts: commits by which operators acted, the newest first.
-- Params: before (number; null: from the last one on), limit.
SELECT no, history.task_no, coalesce(task_id, convoy.key, ''), history.link, at, actor, events, hash
  FROM {schema}.history AS history LEFT JOIN {schema}.task AS task ON task.task_no = history.task_no
       LEFT JOIN {schema}.convoy AS convoy ON convoy.convoy_no = -history.task_no
 WHERE (substr(history.actor, 1, 8) = 'operator'
        OR (history.task_no = 0 AND (substr(history.events, 11, 6) = 'token.' OR substr(history.events, 11, 12) = 'lease.broken')))
   AND no < coalesce(%(before)s::bigint, 9223372036854775807)
 ORDER BY no DESC
 LIMIT %(limit)s

-- select_store_stream_back: the history of the store itself, the newest first.
-- Params: before (link; null: from the last one on), limit.
SELECT no, task_no, '', link, at, actor, events, hash
  FROM {schema}.history
 WHERE task_no = 0 AND link < coalesce(%(before)s::bigint, 9223372036854775807)
 ORDER BY link DESC
 LIMIT %(limit)s
