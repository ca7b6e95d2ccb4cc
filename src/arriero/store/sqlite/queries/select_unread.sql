-- select_unread: a reply queue for each of some tasks that has messages which nobody acknowledged.
-- Params: task_nos (JSON array).
SELECT task_no, min(queue) FROM arriero_status WHERE task_no IN (SELECT value FROM json_each(:task_nos)) GROUP BY task_no
