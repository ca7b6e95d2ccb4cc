-- select_known: tasks by their business ids, with what was submitted; ours until the transaction ends, so that our
-- commit confirms what another's lost answer may have left unconfirmed.
-- Params: task_ids.
SELECT {t.task}, coalesce(body.asked, body.arguments)
  FROM {schema}.task AS t LEFT JOIN {schema}.body AS body ON body.task_no = t.task_no
 WHERE t.task_id = ANY(%(task_ids)s)
 ORDER BY t.task_no
   FOR NO KEY UPDATE OF t
