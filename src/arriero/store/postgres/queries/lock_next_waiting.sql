-- lock_next_waiting: of each convoy the task that waits and stands first, with its arguments; ours until the transaction
-- ends. Those that another transaction holds are left out, and the caller asks more closely.
-- Params: convoy_nos.
SELECT {t.task}, (SELECT arguments FROM {schema}.body WHERE task_no = t.task_no)
  FROM unnest(%(convoy_nos)s::bigint[]) AS wanted (convoy_no)
  JOIN {schema}.convoy AS c ON c.convoy_no = wanted.convoy_no
 CROSS JOIN LATERAL (SELECT f.task_no FROM {schema}.task AS f
                      WHERE f.turn = 'waiting' AND f.convoy_no = c.convoy_no AND f.rank >= c.from_rank
                      ORDER BY f.convoy_no, f.rank, f.place LIMIT 1) AS first
  JOIN {schema}.task AS t ON t.task_no = first.task_no
   FOR NO KEY UPDATE OF t SKIP LOCKED
