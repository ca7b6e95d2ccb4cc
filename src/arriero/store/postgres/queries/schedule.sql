-- select_due_schedules: schedules that the leader is to look at, longest due first; and whether runs of them are open.
-- Ids of runs begin with APP/NAME@, and A comes after @.
-- Params: now, limit. Rows: the columns of a schedule; whether a run of it has not ended; the id of one that can be
-- cancelled, or null.
SELECT s.app, s.name, s.declaration, s.state, s.anchor, s.next_at, s.look_at, s.decided_until, s.owed_until,
       s.last_at, s.last_task, s.last_task_no, s.runs, s.passed_over, s.problem, s.problem_cause, s.problem_since,
       s.undeclared_at, s.paused_at, s.paused_by, s.pause_reason, s.changed_at, s.revision,
       EXISTS (SELECT 1 FROM {schema}.task
                WHERE task_id COLLATE "C" >= s.app || '/' || s.name || '@'
                  AND task_id COLLATE "C" < s.app || '/' || s.name || 'A'
                  AND state IN ('pending', 'processing', 'compensating') AND strpos(task_id, '@') > 0 AND right(task_id, 1) = 'Z'),
       (SELECT task_id FROM {schema}.task
         WHERE task_id COLLATE "C" >= s.app || '/' || s.name || '@'
           AND task_id COLLATE "C" < s.app || '/' || s.name || 'A'
           AND state IN ('pending', 'processing', 'compensating') AND strpos(task_id, '@') > 0 AND right(task_id, 1) = 'Z'
           AND state <> 'compensating' ORDER BY task_id COLLATE "C" LIMIT 1)
  FROM {schema}.schedule AS s
 WHERE s.look_at <= %(now)s
 ORDER BY s.look_at, s.app, s.name
 LIMIT %(limit)s

-- select_cancellable_runs: the first runs of a schedule that are open and not being undone. They are not locked.
-- Params: app, name, limit. Rows: task_no, task_id, incarnation.
SELECT task_no, task_id, incarnation
  FROM {schema}.task
 WHERE task_id COLLATE "C" >= %(app)s::text || '/' || %(name)s::text || '@'
   AND task_id COLLATE "C" < %(app)s::text || '/' || %(name)s::text || 'A'
   AND state IN ('pending', 'processing', 'compensating') AND strpos(task_id, '@') > 0 AND right(task_id, 1) = 'Z' AND state <> 'compensating'
 ORDER BY task_id COLLATE "C"
 LIMIT %(limit)s

-- select_open_run: one open run of a schedule, also one that is being undone. Params: app, name. Zero rows: none is open.
SELECT 1
  FROM {schema}.task
 WHERE task_id COLLATE "C" >= %(app)s::text || '/' || %(name)s::text || '@'
   AND task_id COLLATE "C" < %(app)s::text || '/' || %(name)s::text || 'A'
   AND state IN ('pending', 'processing', 'compensating') AND strpos(task_id, '@') > 0 AND right(task_id, 1) = 'Z'
 LIMIT 1

-- select_next_look: when the leader is to look at a schedule next, of those that are not due. Zero rows: never.
SELECT look_at FROM {schema}.schedule WHERE look_at > %(now)s ORDER BY look_at LIMIT 1

-- lock_schedules: those that are there of some schedules, locked in the order of their keys.
-- Params: apps, names (arrays of one length).
SELECT s.app, s.name, s.declaration, s.state, s.anchor, s.next_at, s.look_at, s.decided_until, s.owed_until,
       s.last_at, s.last_task, s.last_task_no, s.runs, s.passed_over, s.problem, s.problem_cause, s.problem_since,
       s.undeclared_at, s.paused_at, s.paused_by, s.pause_reason, s.changed_at, s.revision
  FROM {schema}.schedule AS s
 WHERE (s.app, s.name) IN (SELECT * FROM unnest(%(apps)s::text[], %(names)s::text[]))
 ORDER BY s.app, s.name
   FOR NO KEY UPDATE OF s

-- add_schedule: a new schedule. Zero rows: there is one of the name.
INSERT INTO {schema}.schedule (
        app, name, declaration, state, anchor, next_at, look_at, decided_until, owed_until, last_at, last_task,
        last_task_no, runs, passed_over, problem, problem_cause, problem_since, undeclared_at, paused_at, paused_by,
        pause_reason, changed_at, revision)
VALUES (
        %(app)s, %(name)s, %(declaration)s, %(state)s, %(anchor)s, %(next_at)s, %(look_at)s, %(decided_until)s,
        %(owed_until)s, %(last_at)s, %(last_task)s, %(last_task_no)s, %(runs)s, %(passed_over)s, %(problem)s,
        %(problem_cause)s, %(problem_since)s, %(undeclared_at)s, %(paused_at)s, %(paused_by)s, %(pause_reason)s,
        %(changed_at)s, %(revision)s)
    ON CONFLICT (app, name) DO NOTHING

-- put_schedule: keep a schedule that this transaction has locked as it stands now.
UPDATE {schema}.schedule
   SET declaration = %(declaration)s, state = %(state)s, anchor = %(anchor)s, next_at = %(next_at)s,
       look_at = %(look_at)s, decided_until = %(decided_until)s, owed_until = %(owed_until)s, last_at = %(last_at)s,
       last_task = %(last_task)s, last_task_no = %(last_task_no)s, runs = %(runs)s, passed_over = %(passed_over)s,
       problem = %(problem)s, problem_cause = %(problem_cause)s, problem_since = %(problem_since)s,
       undeclared_at = %(undeclared_at)s, paused_at = %(paused_at)s, paused_by = %(paused_by)s,
       pause_reason = %(pause_reason)s, changed_at = %(changed_at)s, revision = %(revision)s
 WHERE app = %(app)s AND name = %(name)s

-- remove_schedule: remove a schedule. Its runs stay.
DELETE FROM {schema}.schedule WHERE app = %(app)s AND name = %(name)s

-- select_schedules: all schedules by App and name. Params: app (null: of all).
SELECT app, name, declaration, state, anchor, next_at, look_at, decided_until, owed_until, last_at, last_task,
       last_task_no, runs, passed_over, problem, problem_cause, problem_since, undeclared_at, paused_at, paused_by,
       pause_reason, changed_at, revision
  FROM {schema}.schedule
 WHERE %(app)s::text IS NULL OR app = %(app)s
 ORDER BY app, name

-- select_schedule: one schedule. Zero rows: there is none of the name.
SELECT app, name, declaration, state, anchor, next_at, look_at, decided_until, owed_until, last_at, last_task,
       last_task_no, runs, passed_over, problem, problem_cause, problem_since, undeclared_at, paused_at, paused_by,
       pause_reason, changed_at, revision
  FROM {schema}.schedule
 WHERE app = %(app)s AND name = %(name)s

-- close_schedule_alert: a schedule submits again: every sink must hear of its alert again. Params: step (its name), code (the App).
UPDATE {schema}.alert SET closed_at = %(at)s, told = '[]', attempts = attempts + 1, next_at = %(at)s
 WHERE task_no = 0 AND cause = 'schedule' AND step = %(step)s AND code = %(code)s AND closed_at IS NULL
