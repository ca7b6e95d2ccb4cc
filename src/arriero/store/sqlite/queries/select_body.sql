-- select_body: a task's arguments.
SELECT arguments FROM arriero_body WHERE task_no = :task_no
