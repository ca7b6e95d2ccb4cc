-- erase_history: what rows of the history said, and who; their hashes stay.
-- Params: rows (their no), events.
UPDATE {schema}.history SET actor = '', events = %(events)s WHERE no = ANY(%(rows)s)
