-- begin_batch: the number of this batch in its process's row, and the store's clock. Zero rows: the process is of an
-- epoch that is over.
-- Params: process_no, epoch, batch_no, given (the clock of a test, else null).
UPDATE {schema}.writer SET batch_no = %(batch_no)s WHERE process_no = %(process_no)s AND epoch = %(epoch)s
RETURNING {now}
