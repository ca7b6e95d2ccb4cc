-- hold_alert: it is being told by the process that asks.
-- Params: no, next_at.
UPDATE arriero_alert SET attempts = attempts + 1, next_at = :next_at WHERE no = :no
