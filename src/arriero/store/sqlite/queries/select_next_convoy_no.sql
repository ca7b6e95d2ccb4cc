-- select_next_convoy_no: the number of the next convoy; none is given twice, also when convoys were purged.
SELECT max(coalesce((SELECT max(convoy_no) FROM arriero_convoy), 0),
           coalesce((SELECT CAST(value AS INTEGER) FROM arriero_meta WHERE name = 'last_convoy_no'), 0)) + 1
