-- select_news: tasks held by a process for which something was recorded by others.
-- Params: process_no.
SELECT task_no, revision
  FROM {schema}.task
 WHERE unseen_since IS NOT NULL AND locked_by = %(process_no)s
 ORDER BY unseen_since, task_no
