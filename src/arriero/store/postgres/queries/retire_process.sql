-- retire_process: its renewals fail from now on.
-- Params: process_no.
UPDATE {schema}.process SET retired = true WHERE process_no = %(process_no)s
