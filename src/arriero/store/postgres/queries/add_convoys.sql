-- add_convoys: rows for keys that nobody used before.
-- Params: keys, orderings, given (the clock of a test).
SELECT {schema}.add_convoys(%(keys)s, %(orderings)s, %(given)s)
