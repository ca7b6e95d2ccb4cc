-- select_now: the store's clock. What now_at does, written out: a function is planned anew at each call.
-- Params: given (the clock of a test, else null).
SELECT coalesce(%(given)s::bigint,
                greatest((extract(epoch FROM clock_timestamp()) * 1000000)::bigint
                         + (SELECT value::bigint FROM {schema}.meta WHERE name = 'clock_offset'),
                         (SELECT max(renewed_at) FROM {schema}.process)))
