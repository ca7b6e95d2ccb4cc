-- select_unread: a reply queue for each of some tasks that has messages which nobody acknowledged.
-- Params: task_nos.
SELECT task_no, min(queue) FROM {schema}.status WHERE task_no = ANY(%(task_nos)s) GROUP BY task_no
