-- look_at_forgotten: have convoys looked at whose open task has ended without passing its turn on.
-- Params: now.
UPDATE arriero_convoy SET look_at = :now
 WHERE state = 'open' AND look_at IS NULL
   AND EXISTS (SELECT 1 FROM arriero_task AS task
                WHERE task.task_no = open_task AND task.state IN ('processed', 'compensated', 'error'))
