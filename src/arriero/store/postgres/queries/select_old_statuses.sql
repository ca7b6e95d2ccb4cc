-- select_old_statuses: what is to be dropped, ours until the transaction ends.
-- Params: before, limit.
SELECT no, queue, task_no, '', '', number, incarnation, kind, at, data
  FROM {schema}.status
 WHERE at < %(before)s AND kind <> 'dropped'
 ORDER BY no
 LIMIT %(limit)s
   FOR UPDATE SKIP LOCKED
