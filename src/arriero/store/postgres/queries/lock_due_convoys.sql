-- lock_due_convoys: convoys where it is to be decided anew whose turn it is, longest due first; ours from now on.
-- Params: given (the clock of a test), apart (convoys to be left alone), limit.
SELECT {convoy} FROM {schema}.convoy
 WHERE look_at IS NOT NULL AND look_at <= (SELECT {schema}.now_at(%(given)s))
   AND NOT convoy_no = ANY(%(apart)s::bigint[])
 ORDER BY look_at
 LIMIT %(limit)s
   FOR NO KEY UPDATE SKIP LOCKED
