-- delete_convoy: of a purged convoy.
-- Params: convoy_no.
DELETE FROM arriero_convoy WHERE convoy_no = :convoy_no
