-- keep_task: a new task in the transaction that is open.
-- Params: store_id (null: whichever it is); submission (JSON text in ASCII: the fields of commands.Submit, and given, the
-- clock of a test, else null).
-- Rows: one, as texts: the number of the new or known task, the verdict, the id of a task with the same sequence, and the
-- end of its convoy in JSON.
SELECT task_no::text, verdict, known_id, tail::text FROM {schema}.keep_task(%(store_id)s::text, %(submission)s::json)
