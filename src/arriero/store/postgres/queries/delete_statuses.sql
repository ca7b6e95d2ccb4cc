-- delete_statuses: what their readers are done with.
-- Params: rows (JSON array of objects: queue, no).
DELETE FROM {schema}.status AS status
 USING json_to_recordset(%(rows)s::json) AS given (queue text, no bigint)
 WHERE status.no = given.no AND status.queue = given.queue
