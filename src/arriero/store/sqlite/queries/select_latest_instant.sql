-- select_latest_instant: when the last commit of the history was made; 0 when there is none.
SELECT coalesce((SELECT at FROM arriero_history ORDER BY no DESC LIMIT 1), 0)
