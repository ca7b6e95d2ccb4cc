-- confirm_batch: writes, so that the commit confirms everything before it too.
-- Params: process_no.
UPDATE {schema}.writer SET batch_no = batch_no WHERE process_no = %(process_no)s
