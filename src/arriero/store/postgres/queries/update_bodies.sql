-- update_bodies: keep workflows' arguments as a person edited them; what was asked first is kept beside them.
-- Params: rows (JSON array of objects: task_no, arguments).
UPDATE {schema}.body AS body SET asked = coalesce(body.asked, body.arguments), arguments = given.arguments
  FROM json_to_recordset(%(rows)s::json) AS given (task_no bigint, arguments text)
 WHERE body.task_no = given.task_no
