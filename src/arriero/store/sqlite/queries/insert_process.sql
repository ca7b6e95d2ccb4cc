-- insert_process: a new process start.
-- Params: instance, lease_until. Rows: none; its number is the last row id.
INSERT INTO arriero_process (instance, lease_until, retired) VALUES (:instance, :lease_until, 0)
