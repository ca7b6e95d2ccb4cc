-- select_next_task_no: the number of the next task; none is given twice, also when tasks were purged.
SELECT max(coalesce((SELECT max(task_no) FROM arriero_task), 0),
           coalesce((SELECT CAST(value AS INTEGER) FROM arriero_meta WHERE name = 'last_task_no'), 0)) + 1
