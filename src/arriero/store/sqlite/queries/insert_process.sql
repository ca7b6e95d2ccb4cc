-- insert_process: a new process start.
-- Params: instance, lease_until, about (JSON text). Rows: none; its number is the last row id.
INSERT INTO arriero_process (instance, lease_until, retired, about) VALUES (:instance, :lease_until, 0, :about)
