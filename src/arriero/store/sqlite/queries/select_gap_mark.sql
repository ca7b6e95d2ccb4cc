-- select_gap_mark: the gap mark of a queue, if it has one.
-- Params: queue.
SELECT no, queue, task_no, '', '', number, incarnation, kind, at, data
  FROM arriero_status
 WHERE queue = :queue AND kind = 'dropped'
