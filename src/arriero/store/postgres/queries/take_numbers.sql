-- take_numbers: numbers for new tasks, at least one; none is given twice. And the store's clock.
-- Params: count, given (the clock of a test, else null).
SELECT nextval('{schema}.task_number'), {now} FROM generate_series(1, %(count)s)
