-- select_next_waiting: which task of a convoy waits and stands first after a rank and place.
-- Params: convoy_no, rank, place.
SELECT task_no FROM {schema}.task
 WHERE turn = 'waiting' AND convoy_no = %(convoy_no)s AND (rank, place) > (%(rank)s, %(place)s)
 ORDER BY convoy_no, rank, place
 LIMIT 1
