-- select_loaded: tasks with their arguments.
-- Params: task_nos.
SELECT {t.task}, body.arguments, {t.convoy}
  FROM {schema}.task AS t LEFT JOIN {schema}.body AS body ON body.task_no = t.task_no
 WHERE t.task_no = ANY(%(task_nos)s)
 ORDER BY t.task_no
