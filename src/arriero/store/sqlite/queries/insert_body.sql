-- insert_body: keep a new task's arguments.
-- Params: task_no, arguments (JSON text).
INSERT INTO arriero_body (task_no, arguments) VALUES (:task_no, :arguments)
