-- order_convoy: how a key is ordered in which no task was placed yet.
-- Params: convoy_no, ordering.
UPDATE {schema}.convoy_tail SET ordering = %(ordering)s WHERE convoy_no = %(convoy_no)s AND placed = 0
