-- select_set_aside: the first tasks of a convoy that were set aside and are still in error.
-- Params: convoy_no, limit.
SELECT {task} FROM {schema}.task
 WHERE turn = 'set_aside' AND convoy_no = %(convoy_no)s AND state = 'error'
 ORDER BY place
 LIMIT %(limit)s
