-- count_sequences: how many tasks a convoy has with a sequence in a range.
-- Params: convoy_no, start, end (not in it).
SELECT count(*) FROM arriero_task WHERE convoy_no = :convoy_no AND sequence >= :start AND sequence < :end AND turn IS NOT NULL
