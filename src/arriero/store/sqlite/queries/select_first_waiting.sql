-- select_first_waiting: the task of a convoy that waits for its turn and stands first.
-- Params: convoy_no.
SELECT task_no FROM arriero_task INDEXED BY arriero_task_waiting
 WHERE turn = 'waiting' AND convoy_no = :convoy_no
 ORDER BY rank, place
 LIMIT 1
