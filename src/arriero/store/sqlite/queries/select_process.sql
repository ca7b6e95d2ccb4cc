-- select_process: one process.
-- Params: process_no.
SELECT process_no, instance, lease_until, retired, about FROM arriero_process WHERE process_no = :process_no
