-- take_write_lock: takes the write lock and changes nothing; what others committed before is seen from here on.
-- Params: none. Zero rows.
UPDATE arriero_meta SET value = value WHERE name = ''
