-- select_convoy_by_key: what a key is doing.
-- Params: key.
SELECT {c.convoy} FROM {schema}.convoy AS c JOIN {schema}.convoy_tail AS tail ON tail.convoy_no = c.convoy_no
 WHERE tail.key = %(key)s AND tail.placed > 0
