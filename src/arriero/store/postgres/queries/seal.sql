-- seal: the end of a convoy, ours until the transaction ends; no row: a submitter holds it.
-- Params: convoy_no.
SELECT {tail} FROM {schema}.convoy_tail WHERE convoy_no = %(convoy_no)s FOR NO KEY UPDATE SKIP LOCKED
