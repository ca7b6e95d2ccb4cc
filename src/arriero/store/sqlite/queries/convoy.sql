-- select_convoy: one convoy.
SELECT {convoy}
  FROM arriero_convoy
 WHERE convoy_no = :convoy_no

-- select_convoy_by_key: the convoy of a key.
SELECT {convoy}
  FROM arriero_convoy
 WHERE convoy_no = (SELECT convoy_no FROM arriero_convoy_tail WHERE key = :key AND placed > 0)

-- select_convoys_still: convoys after a number that are stopped, at a gap or parked, in the order of their numbers.
-- Params: after, shown (one of these states), limit.
SELECT {convoy}
  FROM arriero_convoy AS convoy
 WHERE convoy_no > :after AND (state IN ('stopped', 'gap') OR parked_at IS NOT NULL)
   AND CASE WHEN :shown = 'parked' THEN parked_at IS NOT NULL ELSE state = :shown AND parked_at IS NULL END
   AND EXISTS (SELECT 1 FROM arriero_convoy_tail AS tail WHERE tail.convoy_no = convoy.convoy_no AND tail.placed > 0)
 ORDER BY convoy_no
 LIMIT :limit

-- select_convoys_busy: convoys after a number that are not idle, in the order of their numbers.
-- Params: after, shown (open; null: any that is not idle), limit.
SELECT {convoy}
  FROM arriero_convoy AS convoy
 WHERE convoy_no > :after AND (state <> 'idle' OR parked_at IS NOT NULL)
   AND (:shown IS NULL OR state = :shown AND parked_at IS NULL)
   AND EXISTS (SELECT 1 FROM arriero_convoy_tail AS tail WHERE tail.convoy_no = convoy.convoy_no AND tail.placed > 0)
 ORDER BY convoy_no
 LIMIT :limit

-- select_convoys_idle: idle convoys after a number, in the order of their numbers.
-- Params: after, limit.
SELECT {convoy}
  FROM arriero_convoy AS convoy
 WHERE convoy_no > :after AND state = 'idle' AND parked_at IS NULL
   AND EXISTS (SELECT 1 FROM arriero_convoy_tail AS tail WHERE tail.convoy_no = convoy.convoy_no AND tail.placed > 0)
 ORDER BY convoy_no
 LIMIT :limit

-- select_tail_by_key: the end of a convoy by its key.
SELECT {tail}
  FROM arriero_convoy_tail
 WHERE key = :key

-- select_tails: the ends of convoys.
SELECT {tail}
  FROM arriero_convoy_tail
 WHERE convoy_no IN (SELECT value FROM json_each(:convoy_nos))

-- select_due_convoys: convoys whose next turn must be decided, longest due first.
-- Params: apart (JSON array: convoys to be left alone).
SELECT {convoy}
  FROM arriero_convoy
 WHERE look_at IS NOT NULL AND look_at <= :now
   AND convoy_no NOT IN (SELECT value FROM json_each(:apart))
 ORDER BY look_at, convoy_no
 LIMIT :limit

-- select_full_convoys: convoys whose open task gathers a batch that is full.
-- Params: apart (JSON array: convoys to be left alone).
SELECT {convoy}
  FROM arriero_convoy INDEXED BY arriero_convoy_gathers
 WHERE full_at IS NOT NULL
   AND full_at <= (SELECT placed FROM arriero_convoy_tail AS tail WHERE tail.convoy_no = arriero_convoy.convoy_no)
   AND convoy_no NOT IN (SELECT value FROM json_each(:apart))
 ORDER BY convoy_no
 LIMIT :limit

-- select_first_waiting: the task that is first among those that wait in a convoy.
SELECT task_no FROM arriero_task INDEXED BY arriero_task_waiting
 WHERE turn = 'waiting' AND convoy_no = :convoy_no
 ORDER BY rank, place
 LIMIT 1

-- select_waiting: the first tasks of a convoy that wait for their turn, in their order.
SELECT {task}
  FROM arriero_task INDEXED BY arriero_task_waiting
 WHERE turn = 'waiting' AND convoy_no = :convoy_no
 ORDER BY rank, place
 LIMIT :limit

-- select_waiting_line: tasks of a convoy that wait after a rank and place, in their order, with their arguments.
SELECT {task},
       (SELECT arguments FROM arriero_body WHERE arriero_body.task_no = arriero_task.task_no)
  FROM arriero_task INDEXED BY arriero_task_waiting
 WHERE turn = 'waiting' AND convoy_no = :convoy_no AND (rank, place) > (:rank, :place)
 ORDER BY rank, place
 LIMIT :limit

-- select_set_aside: the first tasks of a convoy that were set aside and are still held.
SELECT {task}
  FROM arriero_task INDEXED BY arriero_task_set_aside
 WHERE turn = 'set_aside' AND convoy_no = :convoy_no AND state = 'error'
 ORDER BY place
 LIMIT :limit

-- select_unended_messages: tasks whose messages a batch has and that are not in the state in which it ended.
SELECT {task}
  FROM arriero_task INDEXED BY arriero_task_batch
 WHERE batch_no = :batch_no AND task_no <> :batch_no AND state <> :state
 ORDER BY task_no

-- select_of_sequence: the task of a convoy with a number of the producer's sequence.
SELECT {task}
  FROM arriero_task
 WHERE convoy_no = :convoy_no AND sequence = :sequence

-- select_sequences: numbers of a convoy's sequence that arrived, ascending.
-- Params: start (the first that may be among them), limit.
SELECT sequence FROM arriero_task WHERE convoy_no = :convoy_no AND sequence >= :start AND turn IS NOT NULL ORDER BY sequence LIMIT :limit

-- count_sequences: number of tasks in a convoy with a sequence in a range.
-- Params: start, end (not in the range).
SELECT count(*) FROM arriero_task WHERE convoy_no = :convoy_no AND sequence >= :start AND sequence < :end AND turn IS NOT NULL

-- count_members: for each convoy the number of tasks that wait, and of those that were set aside and are still held.
SELECT wanted.value,
       (SELECT count(*) FROM arriero_task WHERE turn = 'waiting' AND convoy_no = wanted.value),
       (SELECT count(*) FROM arriero_task WHERE turn = 'set_aside' AND convoy_no = wanted.value AND state = 'error')
  FROM json_each(:convoy_nos) AS wanted

-- select_forgotten: one convoy whose open task ended without passing its turn on.
SELECT convoy.convoy_no FROM arriero_convoy AS convoy JOIN arriero_task AS task ON task.task_no = convoy.open_task
 WHERE convoy.state = 'open' AND look_at IS NULL AND task.state IN ('processed', 'compensated', 'error')
 LIMIT 1

-- look_at_forgotten: mark convoys as due whose open task ended without passing its turn on.
UPDATE arriero_convoy SET look_at = :now
 WHERE state = 'open' AND look_at IS NULL
   AND EXISTS (SELECT 1 FROM arriero_task AS task
                WHERE task.task_no = open_task AND task.state IN ('processed', 'compensated', 'error'))
