-- settle_alert: who was told. Zero rows: taken or closed by others meanwhile.
-- Params: no, attempts, told (JSON array), next_at, error.
UPDATE {schema}.alert SET told = %(told)s, next_at = %(next_at)s, error = %(error)s
 WHERE no = %(no)s AND attempts = %(attempts)s
