-- count_sequences: how many tasks a convoy has with a sequence in a range.
-- Params: convoy_no, start, stop (not in it).
SELECT count(*) FROM {schema}.task
 WHERE convoy_no = %(convoy_no)s AND sequence >= %(start)s AND sequence < %(stop)s AND turn IS NOT NULL
