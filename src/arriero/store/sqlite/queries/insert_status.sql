-- insert_status: a status at the end of its queue.
-- Params: queue, task_no (0: a gap mark), number, incarnation, kind, at, data (JSON text).
INSERT INTO arriero_status (queue, task_no, number, incarnation, kind, at, data)
VALUES (:queue, :task_no, :number, :incarnation, :kind, :at, :data)
