-- tell: wake whoever listens.
-- Params: channel, name (of who tells).
SELECT pg_notify(%(channel)s, %(name)s)
