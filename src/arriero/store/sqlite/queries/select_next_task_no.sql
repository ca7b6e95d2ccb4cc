-- select_next_task_no: the number of the next task.
SELECT coalesce(max(task_no), 0) + 1 FROM arriero_task
