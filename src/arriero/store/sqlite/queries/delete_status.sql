-- delete_status: acknowledged. Zero rows: it was before.
-- Params: queue, no.
DELETE FROM arriero_status WHERE no = :no AND queue = :queue
