-- select_batch: the number of the last batch that a process committed; waits for one that is not decided yet.
-- Params: process_no.
SELECT batch_no FROM {schema}.writer WHERE process_no = %(process_no)s FOR NO KEY UPDATE
