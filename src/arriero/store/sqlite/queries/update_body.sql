-- update_body: keep a workflow's arguments as a person edited them; what was asked first is kept beside them.
-- Params: task_no, arguments (JSON text).
UPDATE arriero_body SET asked = coalesce(asked, arguments), arguments = :arguments WHERE task_no = :task_no
