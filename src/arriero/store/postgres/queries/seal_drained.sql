-- seal_drained: the ends of those convoys where nothing waits; ours until the transaction ends. Those that a submitter
-- holds are left out. Nothing waits before from_rank, and what has ended there is not read through.
-- Params: convoy_nos.
SELECT {tail} FROM {schema}.convoy_tail AS tail
 WHERE convoy_no = ANY(%(convoy_nos)s)
   AND (SELECT t.task_no FROM {schema}.task AS t
         WHERE t.turn = 'waiting' AND t.convoy_no = tail.convoy_no
           AND t.rank >= (SELECT c.from_rank FROM {schema}.convoy AS c WHERE c.convoy_no = tail.convoy_no)
         ORDER BY t.convoy_no, t.rank, t.place LIMIT 1) IS NULL
 ORDER BY convoy_no
   FOR NO KEY UPDATE OF tail SKIP LOCKED
