-- select_news_again: those of some tasks that a process holds.
-- Params: process_no, task_nos (they could not be read some time ago).
SELECT task_no, revision FROM {schema}.task
 WHERE task_no = ANY(%(task_nos)s) AND locked_by = %(process_no)s
 ORDER BY task_no
