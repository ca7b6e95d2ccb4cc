-- select_known_code: what processes ran that ever started here.
-- Rows: about (JSON text).
SELECT DISTINCT about FROM arriero_process
