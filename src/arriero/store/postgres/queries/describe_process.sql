-- describe_process: what a process says of itself from now on, unless it is retired.
-- Params: process_no, about (JSON text).
UPDATE {schema}.process SET about = %(about)s WHERE process_no = %(process_no)s AND NOT retired
