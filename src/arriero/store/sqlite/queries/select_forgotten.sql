-- select_forgotten: a convoy whose open task has ended without passing its turn on. Zero rows, or one.
SELECT convoy.convoy_no FROM arriero_convoy AS convoy JOIN arriero_task AS task ON task.task_no = convoy.open_task
 WHERE convoy.state = 'open' AND look_at IS NULL AND task.state IN ('processed', 'compensated', 'error')
 LIMIT 1
