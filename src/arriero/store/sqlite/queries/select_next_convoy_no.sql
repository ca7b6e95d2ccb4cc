-- select_next_convoy_no: the number of the next convoy.
SELECT coalesce(max(convoy_no), 0) + 1 FROM arriero_convoy
