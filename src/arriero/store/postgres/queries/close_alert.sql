-- close_alert: the task left its error; every sink is to be told anew.
-- Params: task_no, at.
UPDATE {schema}.alert SET closed_at = %(at)s, told = '[]', attempts = attempts + 1, next_at = %(at)s
 WHERE task_no = %(task_no)s AND closed_at IS NULL
