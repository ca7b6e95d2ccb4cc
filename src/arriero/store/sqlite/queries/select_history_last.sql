-- select_history_last: the last commits, the newest first.
-- Params: limit.
SELECT task_no, at, events FROM arriero_history ORDER BY no DESC LIMIT :limit
