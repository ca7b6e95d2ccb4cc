-- select_convoy_by_key: the convoy of a key.
SELECT {c.convoy} FROM {schema}.convoy AS c JOIN {schema}.convoy_tail AS tail ON tail.convoy_no = c.convoy_no
 WHERE tail.key = %(key)s AND tail.placed > 0

-- select_convoys_still: convoys after a number that are stopped, at a gap or parked, in the order of their numbers.
-- Params: after, shown (one of these states), limit.
SELECT {convoy}
  FROM {schema}.convoy AS convoy
 WHERE convoy_no > %(after)s AND (state IN ('stopped', 'gap') OR parked_at IS NOT NULL)
   AND CASE WHEN %(shown)s = 'parked' THEN parked_at IS NOT NULL ELSE state = %(shown)s AND parked_at IS NULL END
   AND EXISTS (SELECT 1 FROM {schema}.convoy_tail AS tail WHERE tail.convoy_no = convoy.convoy_no AND tail.placed > 0)
 ORDER BY convoy_no
 LIMIT %(limit)s

-- select_convoys_busy: convoys after a number that are not idle, in the order of their numbers.
-- Params: after, shown (open; null: any that is not idle), limit.
SELECT {convoy}
  FROM {schema}.convoy AS convoy
 WHERE convoy_no > %(after)s AND (state <> 'idle' OR parked_at IS NOT NULL)
   AND (%(shown)s::text IS NULL OR state = %(shown)s AND parked_at IS NULL)
   AND EXISTS (SELECT 1 FROM {schema}.convoy_tail AS tail WHERE tail.convoy_no = convoy.convoy_no AND tail.placed > 0)
 ORDER BY convoy_no
 LIMIT %(limit)s

-- select_convoys_idle: idle convoys after a number, in the order of their numbers.
-- Params: after, limit.
SELECT {convoy}
  FROM {schema}.convoy AS convoy
 WHERE convoy_no > %(after)s AND state = 'idle' AND parked_at IS NULL
   AND EXISTS (SELECT 1 FROM {schema}.convoy_tail AS tail WHERE tail.convoy_no = convoy.convoy_no AND tail.placed > 0)
 ORDER BY convoy_no
 LIMIT %(limit)s

-- select_counts_on: the next number of a convoy's sequence, not locked; it only grows.
SELECT expected FROM {schema}.convoy WHERE convoy_no = %(convoy_no)s

-- lock_convoy: one convoy, locked until the transaction ends.
SELECT {convoy} FROM {schema}.convoy WHERE convoy_no = %(convoy_no)s FOR NO KEY UPDATE

-- lock_convoys: some convoys, locked until the transaction ends. Those that another one holds are left out.
-- Params: convoy_nos, task_nos (their convoys, too).
SELECT {convoy} FROM {schema}.convoy
 WHERE convoy_no = ANY(ARRAY(SELECT unnest(%(convoy_nos)s::bigint[])
                             UNION SELECT t.convoy_no FROM {schema}.task AS t
                                    WHERE t.task_no = ANY(%(task_nos)s::bigint[]) AND t.convoy_no IS NOT NULL))
 ORDER BY convoy_no
   FOR NO KEY UPDATE SKIP LOCKED

-- lock_due_convoys: convoys whose next turn must be decided, longest due first, locked from now on.
-- Params: given (the clock of a test), apart (convoys to be left alone), limit.
SELECT {convoy} FROM {schema}.convoy
 WHERE look_at IS NOT NULL AND look_at <= (SELECT {schema}.now_at(%(given)s))
   AND NOT convoy_no = ANY(%(apart)s::bigint[])
 ORDER BY look_at
 LIMIT %(limit)s
   FOR NO KEY UPDATE SKIP LOCKED

-- lock_full_convoys: convoys whose open task gathers a batch that is full, locked from now on.
-- Params: apart (convoys to be left alone), limit.
SELECT {convoy} FROM {schema}.convoy AS c
 WHERE full_at IS NOT NULL
   AND full_at <= (SELECT placed FROM {schema}.convoy_tail AS tail WHERE tail.convoy_no = c.convoy_no)
   AND NOT convoy_no = ANY(%(apart)s::bigint[])
 ORDER BY convoy_no
 LIMIT %(limit)s
   FOR NO KEY UPDATE SKIP LOCKED

-- select_waiting_line: numbers of the tasks of a convoy that wait after a rank and place, in their order.
SELECT task_no FROM {schema}.task
 WHERE turn = 'waiting' AND convoy_no = %(convoy_no)s AND (rank, place) > (%(rank)s, %(place)s)
 ORDER BY convoy_no, rank, place
 LIMIT %(limit)s

-- select_bodies: the arguments of some tasks.
SELECT task_no, arguments FROM {schema}.body WHERE task_no = ANY(%(task_nos)s::bigint[])

-- select_unended_messages: tasks whose messages a batch has and that are not in the state in which it ended.
SELECT task_no FROM {schema}.task
 WHERE batch_no = %(batch_no)s AND task_no <> %(batch_no)s AND state <> %(state)s
 ORDER BY task_no

-- select_tails: the ends of convoys.
SELECT {tail} FROM {schema}.convoy_tail WHERE convoy_no = ANY(%(convoy_nos)s)

-- lock_tails_by_number: the ends of convoys, locked until the transaction ends. Those that a submitter holds are left out.
SELECT {tail} FROM {schema}.convoy_tail WHERE convoy_no = ANY(%(convoy_nos)s) ORDER BY convoy_no FOR NO KEY UPDATE SKIP LOCKED

-- seal: the end of a convoy, locked until the transaction ends. Zero rows: a submitter holds it.
SELECT {tail} FROM {schema}.convoy_tail WHERE convoy_no = %(convoy_no)s FOR NO KEY UPDATE SKIP LOCKED

-- seal_drained: the ends of those convoys where nothing waits, locked until the transaction ends. Those that a submitter holds are
-- left out. Nothing waits before from_rank, so the ended tasks there are not read.
SELECT {tail} FROM {schema}.convoy_tail AS tail
 WHERE convoy_no = ANY(%(convoy_nos)s)
   AND (SELECT t.task_no FROM {schema}.task AS t
         WHERE t.turn = 'waiting' AND t.convoy_no = tail.convoy_no
           AND t.rank >= (SELECT c.from_rank FROM {schema}.convoy AS c WHERE c.convoy_no = tail.convoy_no)
         ORDER BY t.convoy_no, t.rank, t.place LIMIT 1) IS NULL
 ORDER BY convoy_no
   FOR NO KEY UPDATE OF tail SKIP LOCKED

-- select_drained: those of some convoys where nothing waits.
SELECT c.convoy_no FROM {schema}.convoy AS c
 WHERE c.convoy_no = ANY(%(convoy_nos)s)
   AND (SELECT t.task_no FROM {schema}.task AS t
         WHERE t.turn = 'waiting' AND t.convoy_no = c.convoy_no AND t.rank >= c.from_rank
         ORDER BY t.convoy_no, t.rank, t.place LIMIT 1) IS NULL

-- lock_next_waiting: for each convoy the first task that waits, with its arguments, locked until the transaction ends.
-- Tasks that another transaction holds are left out; the caller then asks more closely.
SELECT {t.task}, (SELECT arguments FROM {schema}.body WHERE task_no = t.task_no)
  FROM unnest(%(convoy_nos)s::bigint[]) AS wanted (convoy_no)
  JOIN {schema}.convoy AS c ON c.convoy_no = wanted.convoy_no
 CROSS JOIN LATERAL (SELECT f.task_no FROM {schema}.task AS f
                      WHERE f.turn = 'waiting' AND f.convoy_no = c.convoy_no AND f.rank >= c.from_rank
                      ORDER BY f.convoy_no, f.rank, f.place LIMIT 1) AS first
  JOIN {schema}.task AS t ON t.task_no = first.task_no
   FOR NO KEY UPDATE OF t SKIP LOCKED

-- select_next_waiting: the first task of a convoy that waits after a rank and place.
SELECT task_no FROM {schema}.task
 WHERE turn = 'waiting' AND convoy_no = %(convoy_no)s AND (rank, place) > (%(rank)s, %(place)s)
 ORDER BY convoy_no, rank, place
 LIMIT 1

-- select_first_waiting: the task that is first among those that wait in a convoy.
SELECT task_no FROM {schema}.task
 WHERE turn = 'waiting' AND convoy_no = %(convoy_no)s
 ORDER BY convoy_no, rank, place
 LIMIT 1

-- select_behind: for each convoy the second task that waits, with its arguments, as a hint; it is not locked.
SELECT {t.task}, (SELECT arguments FROM {schema}.body WHERE task_no = t.task_no)
  FROM unnest(%(convoy_nos)s::bigint[]) AS wanted (convoy_no)
  JOIN {schema}.convoy AS c ON c.convoy_no = wanted.convoy_no
 CROSS JOIN LATERAL (SELECT f.task_no FROM {schema}.task AS f
                      WHERE f.turn = 'waiting' AND f.convoy_no = c.convoy_no AND f.rank >= c.from_rank
                      ORDER BY f.convoy_no, f.rank, f.place OFFSET 1 LIMIT 1) AS second
  JOIN {schema}.task AS t ON t.task_no = second.task_no

-- select_waiting: the first tasks of a convoy that wait for their turn, in their order.
SELECT {task} FROM {schema}.task
 WHERE turn = 'waiting' AND convoy_no = %(convoy_no)s
 ORDER BY convoy_no, rank, place
 LIMIT %(limit)s

-- select_set_aside: the first tasks of a convoy that were set aside and are still held.
SELECT {task} FROM {schema}.task
 WHERE turn = 'set_aside' AND convoy_no = %(convoy_no)s AND state = 'error'
 ORDER BY place
 LIMIT %(limit)s

-- select_sequences: numbers of a convoy's sequence that arrived, ascending.
-- Params: start (the first that may be among them), limit.
SELECT sequence FROM {schema}.task
 WHERE convoy_no = %(convoy_no)s AND sequence >= %(start)s AND turn IS NOT NULL
 ORDER BY sequence LIMIT %(limit)s

-- count_sequences: number of tasks in a convoy with a sequence in a range.
-- Params: start, stop (not in the range).
SELECT count(*) FROM {schema}.task
 WHERE convoy_no = %(convoy_no)s AND sequence >= %(start)s AND sequence < %(stop)s AND turn IS NOT NULL

-- count_members: for each convoy the number of tasks that wait, and of those that were set aside and are still held.
SELECT wanted.convoy_no,
       (SELECT count(*) FROM {schema}.task AS t WHERE t.turn = 'waiting' AND t.convoy_no = wanted.convoy_no),
       (SELECT count(*) FROM {schema}.task AS t
         WHERE t.turn = 'set_aside' AND t.convoy_no = wanted.convoy_no AND t.state = 'error')
  FROM unnest(%(convoy_nos)s::bigint[]) AS wanted (convoy_no)

-- look_at_forgotten: mark convoys as due whose open task ended without passing its turn on.
UPDATE {schema}.convoy AS c SET look_at = %(now)s
 WHERE c.convoy_no IN (SELECT f.convoy_no FROM {schema}.convoy AS f JOIN {schema}.task AS t ON t.task_no = f.open_task
                        WHERE f.state = 'open' AND f.look_at IS NULL
                          AND t.state IN ('processed', 'compensated', 'error')
                        ORDER BY f.convoy_no FOR NO KEY UPDATE OF f SKIP LOCKED)
RETURNING c.convoy_no
