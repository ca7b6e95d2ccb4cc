-- select_news: tasks held by a process for which something was recorded by others.
-- Params: process_no, since (older ones are not looked at), apart (tasks to be left alone).
SELECT task_no, revision, unseen_since
  FROM {schema}.task
 WHERE unseen_since IS NOT NULL AND locked_by = %(process_no)s AND unseen_since >= %(since)s
   AND NOT task_no = ANY(%(apart)s::bigint[])
 ORDER BY unseen_since, task_no
