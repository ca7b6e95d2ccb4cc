-- retire_process: declare a process lost.
-- Params: process_no.
UPDATE arriero_process SET retired = 1 WHERE process_no = :process_no
