-- delete_convoy_tail: of a purged convoy.
-- Params: convoy_no.
DELETE FROM arriero_convoy_tail WHERE convoy_no = :convoy_no
