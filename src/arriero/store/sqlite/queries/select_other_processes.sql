-- select_other_processes: processes that are not retired, or are still named by a row.
-- Params: process_no.
SELECT process_no, instance, lease_until, retired, about
  FROM arriero_process AS process
 WHERE process_no <> :process_no
   AND (NOT retired
        OR EXISTS (SELECT 1 FROM arriero_task WHERE locked_by = process.process_no)
        OR EXISTS (SELECT 1 FROM arriero_step WHERE locked_by = process.process_no))
 ORDER BY process_no
