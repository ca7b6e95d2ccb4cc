-- insert_history: append one link.
-- Params: task_no (0: the store's own), link, at, actor, events (JSON text), hash.
INSERT INTO arriero_history (task_no, link, at, actor, events, hash)
VALUES (:task_no, :link, :at, :actor, :events, :hash)
