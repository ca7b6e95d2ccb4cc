-- describe_process: what a process start says of itself, from now on.
-- Params: process_no, about. Zero rows.
UPDATE arriero_process SET about = :about WHERE process_no = :process_no
