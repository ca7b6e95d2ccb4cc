-- lock_tails: the ends of some convoys, ours until the transaction ends: places are given in the order of commits.
-- Params: keys.
SELECT {tail} FROM {schema}.convoy_tail WHERE key = ANY(%(keys)s) ORDER BY convoy_no FOR NO KEY UPDATE
