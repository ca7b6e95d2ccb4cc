-- select_now: the store's clock.
-- Params: given (the clock of a test, else null).
SELECT {now}
