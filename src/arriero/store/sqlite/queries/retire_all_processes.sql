-- retire_all_processes: their renewals fail from now on.
UPDATE arriero_process SET retired = 1 WHERE NOT retired
