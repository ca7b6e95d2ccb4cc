-- select_history: history in the order of commits.
-- Params: after, until (numbers; the first is not in it, the last is), limit.
SELECT no, history.task_no, coalesce(task_id, convoy.key, ''), history.link, at, actor, events, hash
  FROM arriero_history AS history LEFT JOIN arriero_task AS task ON task.task_no = history.task_no
       LEFT JOIN arriero_convoy AS convoy ON convoy.convoy_no = -history.task_no
 WHERE no > :after AND no <= :until
 ORDER BY no
 LIMIT :limit

-- select_task_history: history of one task.
-- Params: after (link), until (no), limit.
SELECT no, history.task_no, coalesce(task_id, convoy.key, ''), history.link, at, actor, events, hash
  FROM arriero_history AS history LEFT JOIN arriero_task AS task ON task.task_no = history.task_no
       LEFT JOIN arriero_convoy AS convoy ON convoy.convoy_no = -history.task_no
 WHERE history.task_no = :task_no AND history.link > :after AND no <= :until
 ORDER BY history.link
 LIMIT :limit

-- select_people_commits: events of a task's commits from an instant on that tell of people's verbs, the newest first.
SELECT events FROM arriero_history
 WHERE task_no = :task_no AND at >= :since AND instr(events, '"operator.') > 0
 ORDER BY link DESC

-- select_history_end: the last number of the history; 0 when it is empty.
SELECT coalesce(max(no), 0) FROM arriero_history

-- select_history_last: the last commits, newest first.
SELECT task_no, at, events FROM arriero_history ORDER BY no DESC LIMIT :limit

-- select_latest_instant: when the last commit of the history was made; 0 when there is none.
SELECT coalesce((SELECT at FROM arriero_history ORDER BY no DESC LIMIT 1), 0)

-- select_acts: commits by which operators acted, the newest first.
-- Params: before (number; null: from the last one on), limit.
SELECT no, history.task_no, coalesce(task_id, convoy.key, ''), history.link, at, actor, events, hash
  FROM arriero_history AS history LEFT JOIN arriero_task AS task ON task.task_no = history.task_no
       LEFT JOIN arriero_convoy AS convoy ON convoy.convoy_no = -history.task_no
 WHERE (substr(history.actor, 1, 8) = 'operator'
        OR (history.task_no = 0 AND (substr(history.events, 11, 6) = 'token.' OR substr(history.events, 11, 12) = 'lease.broken')))
   AND no < coalesce(:before, 9223372036854775807)
 ORDER BY no DESC
 LIMIT :limit

-- select_store_stream_back: the history of the store itself, the newest first.
-- Params: before (link; null: from the last one on), limit.
SELECT no, task_no, '', link, at, actor, events, hash
  FROM arriero_history
 WHERE task_no = 0 AND link < coalesce(:before, 9223372036854775807)
 ORDER BY link DESC
 LIMIT :limit
