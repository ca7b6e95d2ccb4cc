-- look_at_inbox: the last number of a task's signals; number and bytes of those in its inbox, and the number of those of one name.
SELECT (SELECT coalesce(max(number), 0) FROM {schema}.signal WHERE task_no = %(task_no)s),
       count(*), coalesce(sum(octet_length(value)), 0)::bigint, count(*) FILTER (WHERE name = %(name)s)
  FROM {schema}.signal
 WHERE task_no = %(task_no)s AND step IS NULL

-- select_signal_by_id: the signal that a sender gave this id.
SELECT task_no, number, name, signal_id, value, sent_by, sent_at, step, wants_reply, reply, replied_at
  FROM {schema}.signal
 WHERE task_no = %(task_no)s AND signal_id = %(signal_id)s

-- select_signal_of_runs: the signal of that id in any run of a task; one that went along to a later run is found there.
SELECT kept.task_no, kept.number, kept.name, kept.signal_id, kept.value, kept.sent_by, kept.sent_at, kept.step, kept.wants_reply, kept.reply, kept.replied_at
  FROM {schema}.task AS run JOIN {schema}.signal AS kept ON kept.task_no = run.task_no
 WHERE run.first_no = %(first_no)s AND kept.signal_id = %(signal_id)s AND kept.step IS NOT NULL AND kept.step >= 0

-- select_signal: one signal of a task.
SELECT task_no, number, name, signal_id, value, sent_by, sent_at, step, wants_reply, reply, replied_at
  FROM {schema}.signal
 WHERE task_no = %(task_no)s AND number = %(number)s

-- select_inboxes: the signals of some tasks that no wait has taken, in the order of their commits.
SELECT task_no, number, name, signal_id, value, sent_by, sent_at, step, wants_reply, reply, replied_at
  FROM {schema}.signal
 WHERE task_no = ANY(%(task_nos)s::bigint[]) AND step IS NULL
 ORDER BY task_no, number

-- select_signals: all signals of a task, in the order of their commits.
SELECT task_no, number, name, signal_id, value, sent_by, sent_at, step, wants_reply, reply, replied_at
  FROM {schema}.signal
 WHERE task_no = %(task_no)s AND number > %(after)s
 ORDER BY number
 LIMIT %(limit)s

-- select_signals_aside: signals of tasks that receive others, set aside, which no later one of their name follows.
-- Params: looked_at (signals that were set aside, the latest).
-- Rows: task_id, then the columns of the signal; the latest first.
SELECT task.task_id, aside.task_no, aside.number, aside.name, aside.signal_id, aside.value, aside.sent_by, aside.sent_at, aside.step, aside.wants_reply, aside.reply, aside.replied_at
  FROM (SELECT * FROM {schema}.signal
         WHERE step = 0 ORDER BY sent_at DESC LIMIT %(looked_at)s) AS aside
  JOIN {schema}.task AS task ON task.task_no = aside.task_no
 WHERE task.state IN ('pending', 'processing')
   AND NOT EXISTS (SELECT 1 FROM {schema}.signal AS later
                    WHERE later.task_no = aside.task_no AND later.number > aside.number AND later.name = aside.name
                      AND later.step IS DISTINCT FROM 0)
 ORDER BY aside.sent_at DESC, aside.task_no DESC, aside.number DESC
 LIMIT %(limit)s

-- put_signal: keep a signal, new or changed.
INSERT INTO {schema}.signal (task_no, number, name, signal_id, value, sent_by, sent_at, step, wants_reply, reply, replied_at)
VALUES (%(task_no)s, %(number)s, %(name)s, %(signal_id)s, %(value)s, %(sent_by)s, %(sent_at)s, %(step)s, %(wants_reply)s,
        %(reply)s, %(replied_at)s)
    ON CONFLICT (task_no, number) DO UPDATE
   SET step = excluded.step, reply = excluded.reply, replied_at = excluded.replied_at

-- keep_signal: keep a signal in the caller's transaction.
-- Params: store_id (null: any); sending (JSON text in ASCII: see the function).
-- Rows: one, as texts: the number of the signal, the verdict, why it is refused in hexadecimal digits of UTF-8, and the state of the task.
SELECT number::text, verdict, encode(convert_to(detail, 'UTF8'), 'hex'), task_state FROM {schema}.keep_signal(%(store_id)s::text, %(sending)s::json)
