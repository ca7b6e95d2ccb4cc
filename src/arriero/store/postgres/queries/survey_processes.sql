-- survey_processes: processes that are not retired.
SELECT process_no, instance, lease_until, retired, about FROM {schema}.process WHERE NOT retired ORDER BY process_no
