-- select_old_statuses: what is to be dropped.
-- Params: before, limit.
SELECT no, queue, task_no, '', '', number, incarnation, kind, at, data
  FROM arriero_status
 WHERE at < :before AND kind <> 'dropped'
 ORDER BY no
 LIMIT :limit
