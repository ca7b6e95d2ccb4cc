-- settle_alert: who was told. Zero rows: taken or closed by others meanwhile.
-- Params: no, attempts, told (JSON array), next_at, error.
UPDATE arriero_alert SET told = :told, next_at = :next_at, error = :error WHERE no = :no AND attempts = :attempts
