-- select_edits: payloads of a task that people gave or replaced, in the order of the commits.
-- Params: task_no.
SELECT task_no, link, ordinal, what, incarnation, attempt, at, edited_by, reason, before, after, key_before, key_after
  FROM arriero_edit
 WHERE task_no = :task_no
 ORDER BY link
