-- lock_process: one process start, ours until the transaction ends.
-- Params: process_no.
SELECT process_no, instance, lease_until, retired, about
  FROM {schema}.process WHERE process_no = %(process_no)s FOR NO KEY UPDATE
