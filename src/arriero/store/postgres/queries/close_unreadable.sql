-- close_unreadable: every row of some tasks can be read again; every sink is to be told anew.
-- Params: task_nos, at.
UPDATE {schema}.alert SET closed_at = %(at)s, told = '[]', attempts = attempts + 1, next_at = %(at)s
 WHERE task_no = ANY(%(task_nos)s) AND cause = 'unreadable' AND closed_at IS NULL
