-- lock_asking: what those keys are doing where a new task may be the next; ours until the transaction ends.
-- Params: keys.
SELECT {c.convoy} FROM {schema}.convoy AS c JOIN {schema}.convoy_tail AS tail ON tail.convoy_no = c.convoy_no
 WHERE tail.key = ANY(%(keys)s) AND tail.asks
 ORDER BY c.convoy_no
   FOR NO KEY UPDATE OF c
