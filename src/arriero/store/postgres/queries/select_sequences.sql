-- select_sequences: numbers of a convoy's sequence that came, from one on, ascending.
-- Params: convoy_no, start, limit.
SELECT sequence FROM {schema}.task
 WHERE convoy_no = %(convoy_no)s AND sequence >= %(start)s AND turn IS NOT NULL
 ORDER BY sequence LIMIT %(limit)s
