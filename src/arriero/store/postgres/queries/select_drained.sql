-- select_drained: those of some convoys where nothing waits.
-- Params: convoy_nos.
SELECT c.convoy_no FROM {schema}.convoy AS c
 WHERE c.convoy_no = ANY(%(convoy_nos)s)
   AND (SELECT t.task_no FROM {schema}.task AS t
         WHERE t.turn = 'waiting' AND t.convoy_no = c.convoy_no AND t.rank >= c.from_rank
         ORDER BY t.convoy_no, t.rank, t.place LIMIT 1) IS NULL
