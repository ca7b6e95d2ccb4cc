-- look_at_inbox: the last number of a task's signals; number and bytes of those in its inbox, and the number of those of one name.
SELECT (SELECT coalesce(max(number), 0) FROM arriero_signal WHERE task_no = :task_no),
       count(*), coalesce(sum(length(CAST(value AS BLOB))), 0), coalesce(sum(name = :name), 0)
  FROM arriero_signal INDEXED BY arriero_signal_inbox
 WHERE task_no = :task_no AND step IS NULL

-- select_signal_by_id: the signal that a sender gave this id.
SELECT task_no, number, name, signal_id, value, sent_by, sent_at, step, wants_reply, reply, replied_at
  FROM arriero_signal
 WHERE task_no = :task_no AND signal_id = :signal_id

-- select_signal_of_runs: the signal of that id in any run of a task; one that went along to a later run is found there.
SELECT kept.task_no, kept.number, kept.name, kept.signal_id, kept.value, kept.sent_by, kept.sent_at, kept.step, kept.wants_reply, kept.reply, kept.replied_at
  FROM arriero_task AS run JOIN arriero_signal AS kept ON kept.task_no = run.task_no
 WHERE run.first_no = :first_no AND kept.signal_id = :signal_id AND kept.step IS NOT NULL AND kept.step >= 0

-- select_signal: one signal of a task.
SELECT task_no, number, name, signal_id, value, sent_by, sent_at, step, wants_reply, reply, replied_at
  FROM arriero_signal
 WHERE task_no = :task_no AND number = :number

-- select_inboxes: the signals of some tasks that no wait has taken, in the order of their commits.
-- Params: task_nos (JSON array).
SELECT task_no, number, name, signal_id, value, sent_by, sent_at, step, wants_reply, reply, replied_at
  FROM arriero_signal INDEXED BY arriero_signal_inbox
 WHERE task_no IN (SELECT value FROM json_each(:task_nos)) AND step IS NULL
 ORDER BY task_no, number

-- select_signals: all signals of a task, in the order of their commits.
SELECT task_no, number, name, signal_id, value, sent_by, sent_at, step, wants_reply, reply, replied_at
  FROM arriero_signal
 WHERE task_no = :task_no AND number > :after
 ORDER BY number
 LIMIT :limit

-- select_signals_aside: signals of tasks that receive others, set aside, which no later one of their name follows.
-- Params: looked_at (signals that were set aside, the latest).
-- Rows: task_id, then the columns of the signal; the latest first.
SELECT task.task_id, aside.task_no, aside.number, aside.name, aside.signal_id, aside.value, aside.sent_by, aside.sent_at, aside.step, aside.wants_reply, aside.reply, aside.replied_at
  FROM (SELECT * FROM arriero_signal INDEXED BY arriero_signal_aside
         WHERE step = 0 ORDER BY sent_at DESC LIMIT :looked_at) AS aside
  JOIN arriero_task AS task ON task.task_no = aside.task_no
 WHERE task.state IN ('pending', 'processing')
   AND NOT EXISTS (SELECT 1 FROM arriero_signal AS later
                    WHERE later.task_no = aside.task_no AND later.number > aside.number AND later.name = aside.name
                      AND later.step IS NOT 0)
 ORDER BY aside.sent_at DESC, aside.task_no DESC, aside.number DESC
 LIMIT :limit

-- put_signal: keep a signal, new or changed.
INSERT INTO arriero_signal (task_no, number, name, signal_id, value, sent_by, sent_at, step, wants_reply, reply, replied_at)
VALUES (:task_no, :number, :name, :signal_id, :value, :sent_by, :sent_at, :step, :wants_reply, :reply, :replied_at)
    ON CONFLICT (task_no, number) DO UPDATE
   SET step = excluded.step, reply = excluded.reply, replied_at = excluded.replied_at
