-- erase_history: what a row of the history said, and who; its hash stays.
-- Params: no, events.
UPDATE arriero_history SET actor = '', events = :events WHERE no = :no
