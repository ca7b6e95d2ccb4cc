-- select_submitted: what a task was submitted with, whatever a person has sent in its place.
-- Params: task_no.
SELECT coalesce(asked, arguments) FROM arriero_body WHERE task_no = :task_no
