-- select_gap_marks: the gap marks of some queues, ours until the transaction ends.
-- Params: queues.
SELECT no, queue, task_no, '', '', number, incarnation, kind, at, data
  FROM {schema}.status
 WHERE queue = ANY(%(queues)s) AND kind = 'dropped'
 ORDER BY no
   FOR UPDATE
