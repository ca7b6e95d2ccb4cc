-- lock_tails_by_number: the ends of some convoys, ours until the transaction ends; those that a submitter holds are left out.
-- Params: convoy_nos.
SELECT {tail} FROM {schema}.convoy_tail WHERE convoy_no = ANY(%(convoy_nos)s) ORDER BY convoy_no FOR NO KEY UPDATE SKIP LOCKED
