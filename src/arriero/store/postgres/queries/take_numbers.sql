-- take_numbers: numbers for new tasks; none is given twice.
-- Params: count.
SELECT nextval('{schema}.task_number') FROM generate_series(1, %(count)s)
