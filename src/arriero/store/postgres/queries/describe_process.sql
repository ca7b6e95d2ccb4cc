-- describe_process: what a process start says of itself, from now on.
-- Params: process_no, about. Zero rows.
UPDATE {schema}.process SET about = %(about)s WHERE process_no = %(process_no)s
