-- leave_out_processes: the next process start gets a number after this one.
-- Params: process_no, instance.
INSERT INTO arriero_process (process_no, instance, lease_until, retired, about) VALUES (:process_no, :instance, 0, 1, '{}')
