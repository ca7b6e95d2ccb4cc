-- lock_touched: what those keys are doing where a new task may change it or may not come in, read after their ends were
-- locked; ours until the transaction ends.
-- Params: convoy_nos; numbered (those with a task that has a sequence).
SELECT {c.convoy} FROM {schema}.convoy AS c JOIN {schema}.convoy_tail AS tail ON tail.convoy_no = c.convoy_no
 WHERE c.convoy_no = ANY(%(convoy_nos)s)
   AND (tail.asks OR tail.ordering = 'sequence' OR tail.end_rank IS NOT NULL OR c.convoy_no = ANY(%(numbered)s))
 ORDER BY c.convoy_no
   FOR NO KEY UPDATE OF c
