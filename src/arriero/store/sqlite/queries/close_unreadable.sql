-- close_unreadable: every row of a task can be read again; every sink is to be told anew.
-- Params: task_no, at.
UPDATE arriero_alert SET closed_at = :at, told = '[]', attempts = attempts + 1, next_at = :at
 WHERE task_no = :task_no AND cause = 'unreadable' AND closed_at IS NULL
