-- number_from: tasks and processes are numbered from here on.
-- Params: first.
SELECT setval('{schema}.task_number', greatest(nextval('{schema}.task_number'), %(first)s), false),
       setval(pg_get_serial_sequence('{schema}.process', 'process_no'),
              greatest(nextval(pg_get_serial_sequence('{schema}.process', 'process_no')), %(first)s), false)
