-- describe_process: what a process says of itself from now on, unless it is retired.
-- Params: process_no, about (JSON text).
UPDATE arriero_process SET about = :about WHERE process_no = :process_no AND NOT retired
