-- select_other_processes: processes that are not retired, or are still named by a row.
-- Whom rows name is asked of the indexes from one number to the next: so it costs as much as there are such processes,
-- however many rows they hold.
-- Params: process_no.
WITH RECURSIVE holds_task (process_no) AS (
    SELECT (SELECT min(locked_by) FROM {schema}.task WHERE locked_by IS NOT NULL)
     UNION ALL
    SELECT (SELECT min(task.locked_by) FROM {schema}.task AS task
             WHERE task.locked_by IS NOT NULL AND task.locked_by > holds_task.process_no)
      FROM holds_task WHERE holds_task.process_no IS NOT NULL
), holds_step (process_no) AS (
    SELECT (SELECT min(locked_by) FROM {schema}.step WHERE locked_by IS NOT NULL)
     UNION ALL
    SELECT (SELECT min(step.locked_by) FROM {schema}.step AS step
             WHERE step.locked_by IS NOT NULL AND step.locked_by > holds_step.process_no)
      FROM holds_step WHERE holds_step.process_no IS NOT NULL
)
SELECT process_no, instance, lease_until, retired, about
  FROM {schema}.process
 WHERE process_no <> %(process_no)s
   AND process_no IN (SELECT process_no FROM {schema}.process WHERE NOT retired
                       UNION SELECT process_no FROM holds_task
                       UNION SELECT process_no FROM holds_step)
 ORDER BY process_no
