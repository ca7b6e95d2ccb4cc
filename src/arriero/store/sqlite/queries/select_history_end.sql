-- select_history_end: the last number of the history; 0 when it is empty.
SELECT coalesce(max(no), 0) FROM arriero_history
