-- count_members: how many tasks of a convoy wait, and how many were set aside and are still in error.
-- Params: convoy_no.
SELECT (SELECT count(*) FROM arriero_task WHERE turn = 'waiting' AND convoy_no = :convoy_no),
       (SELECT count(*) FROM arriero_task WHERE turn = 'set_aside' AND convoy_no = :convoy_no AND state = 'error')
