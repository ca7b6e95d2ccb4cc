-- select_of_convoy: all tasks of a convoy, also those that a ledger keeps. It reads all tasks.
-- Params: convoy_no.
SELECT task_no FROM arriero_task WHERE convoy_no = :convoy_no ORDER BY task_no
