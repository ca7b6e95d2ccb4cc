-- select_of_convoy: all tasks of a convoy, also those that a ledger keeps. It reads all tasks.
-- Params: convoy_no.
SELECT task_no FROM {schema}.task WHERE convoy_no = %(convoy_no)s ORDER BY task_no
