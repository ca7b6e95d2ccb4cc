-- select_due_schedules: schedules that the leader is to look at, longest due first; and whether runs of them are open.
-- Ids of runs begin with APP/NAME@, and A comes after @.
-- Params: now, limit. Rows: the columns of a schedule; whether a run of it has not ended; the id of one that can be
-- cancelled, or null.
SELECT s.app, s.name, s.declaration, s.state, s.anchor, s.next_at, s.look_at, s.decided_until, s.owed_until,
       s.last_at, s.last_task, s.last_task_no, s.runs, s.passed_over, s.problem, s.problem_cause, s.problem_since,
       s.undeclared_at, s.paused_at, s.paused_by, s.pause_reason, s.changed_at, s.revision,
       EXISTS (SELECT 1 FROM arriero_task INDEXED BY arriero_task_open_run
                WHERE task_id >= s.app || '/' || s.name || '@' AND task_id < s.app || '/' || s.name || 'A'
                  AND state IN ('pending', 'processing', 'compensating') AND task_id GLOB '*/*@*Z'),
       (SELECT task_id FROM arriero_task INDEXED BY arriero_task_open_run
         WHERE task_id >= s.app || '/' || s.name || '@' AND task_id < s.app || '/' || s.name || 'A'
           AND state IN ('pending', 'processing', 'compensating') AND task_id GLOB '*/*@*Z'
           AND state <> 'compensating' ORDER BY task_id LIMIT 1)
  FROM arriero_schedule AS s
 WHERE s.look_at <= :now
 ORDER BY s.look_at, s.app, s.name
 LIMIT :limit

-- select_cancellable_runs: the first runs of a schedule that are open and not being undone. Whoever asks has the write lock.
-- Params: app, name, limit. Rows: task_no, task_id, incarnation.
SELECT task_no, task_id, incarnation
  FROM arriero_task INDEXED BY arriero_task_open_run
 WHERE task_id >= :app || '/' || :name || '@' AND task_id < :app || '/' || :name || 'A'
   AND state IN ('pending', 'processing', 'compensating') AND task_id GLOB '*/*@*Z' AND state <> 'compensating'
 ORDER BY task_id
 LIMIT :limit

-- select_open_run: one open run of a schedule, also one that is being undone. Params: app, name. Zero rows: none is open.
SELECT 1
  FROM arriero_task INDEXED BY arriero_task_open_run
 WHERE task_id >= :app || '/' || :name || '@' AND task_id < :app || '/' || :name || 'A'
   AND state IN ('pending', 'processing', 'compensating') AND task_id GLOB '*/*@*Z'
 LIMIT 1

-- select_next_look: when the leader is to look at a schedule next, of those that are not due. Zero rows: never.
SELECT look_at FROM arriero_schedule WHERE look_at > :now ORDER BY look_at LIMIT 1

-- lock_schedules: one schedule. Whoever asks has the write lock. Zero rows: there is none of the name.
SELECT app, name, declaration, state, anchor, next_at, look_at, decided_until, owed_until, last_at, last_task,
       last_task_no, runs, passed_over, problem, problem_cause, problem_since, undeclared_at, paused_at, paused_by,
       pause_reason, changed_at, revision
  FROM arriero_schedule
 WHERE app = :app AND name = :name

-- add_schedule: a new schedule. Zero rows: there is one of the name.
INSERT INTO arriero_schedule (
        app, name, declaration, state, anchor, next_at, look_at, decided_until, owed_until, last_at, last_task,
        last_task_no, runs, passed_over, problem, problem_cause, problem_since, undeclared_at, paused_at, paused_by,
        pause_reason, changed_at, revision)
VALUES (
        :app, :name, :declaration, :state, :anchor, :next_at, :look_at, :decided_until, :owed_until, :last_at,
        :last_task, :last_task_no, :runs, :passed_over, :problem, :problem_cause, :problem_since, :undeclared_at,
        :paused_at, :paused_by, :pause_reason, :changed_at, :revision)
    ON CONFLICT (app, name) DO NOTHING

-- put_schedule: keep a schedule that this transaction has locked as it stands now.
UPDATE arriero_schedule
   SET declaration = :declaration, state = :state, anchor = :anchor, next_at = :next_at, look_at = :look_at,
       decided_until = :decided_until, owed_until = :owed_until, last_at = :last_at, last_task = :last_task,
       last_task_no = :last_task_no, runs = :runs, passed_over = :passed_over, problem = :problem,
       problem_cause = :problem_cause, problem_since = :problem_since, undeclared_at = :undeclared_at,
       paused_at = :paused_at, paused_by = :paused_by, pause_reason = :pause_reason, changed_at = :changed_at,
       revision = :revision
 WHERE app = :app AND name = :name

-- remove_schedule: remove a schedule. Its runs stay.
DELETE FROM arriero_schedule WHERE app = :app AND name = :name

-- select_schedules: all schedules by App and name. Params: app (null: of all).
SELECT app, name, declaration, state, anchor, next_at, look_at, decided_until, owed_until, last_at, last_task,
       last_task_no, runs, passed_over, problem, problem_cause, problem_since, undeclared_at, paused_at, paused_by,
       pause_reason, changed_at, revision
  FROM arriero_schedule
 WHERE :app IS NULL OR app = :app
 ORDER BY app, name

-- select_schedule: one schedule. Zero rows: there is none of the name.
SELECT app, name, declaration, state, anchor, next_at, look_at, decided_until, owed_until, last_at, last_task,
       last_task_no, runs, passed_over, problem, problem_cause, problem_since, undeclared_at, paused_at, paused_by,
       pause_reason, changed_at, revision
  FROM arriero_schedule
 WHERE app = :app AND name = :name

-- close_schedule_alert: a schedule submits again: every sink must hear of its alert again. Params: step (its name), code (the App).
UPDATE arriero_alert SET closed_at = :at, told = '[]', attempts = attempts + 1, next_at = :at
 WHERE task_no = 0 AND cause = 'schedule' AND step = :step AND code = :code AND closed_at IS NULL
