-- select_expected: the next number of the sequence of some keys.
-- Params: keys.
SELECT c.convoy_no, c.expected FROM {schema}.convoy AS c JOIN {schema}.convoy_tail AS tail ON tail.convoy_no = c.convoy_no
 WHERE tail.key = ANY(%(keys)s)
