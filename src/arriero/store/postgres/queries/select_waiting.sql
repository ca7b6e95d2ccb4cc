-- select_waiting: the first tasks of a convoy that wait for their turn, in their order.
-- Params: convoy_no, limit.
SELECT {task} FROM {schema}.task
 WHERE turn = 'waiting' AND convoy_no = %(convoy_no)s
 ORDER BY convoy_no, rank, place
 LIMIT %(limit)s
