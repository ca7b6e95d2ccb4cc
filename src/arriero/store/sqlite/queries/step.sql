-- select_step: one step.
SELECT {step}
  FROM arriero_step
 WHERE step_no = :step_no

-- select_steps: all steps of a task in the order in which they were opened.
-- Params: first, end (step numbers; end is not in it).
SELECT {step}
  FROM arriero_step
 WHERE step_no >= :first AND step_no < :end
 ORDER BY step_no

-- select_open_steps: pending and running steps of a task, timers included, in the order in which they were opened.
-- Params: first, end (step numbers; end is not in it).
SELECT {step}
  FROM arriero_step
 WHERE step_no >= :first AND step_no < :end AND state IN ('pending', 'running')
 ORDER BY step_no

-- select_agents: the Agents of steps. Missing: the step is gone, or is a timer.
-- Params: step_nos (JSON array).
SELECT step_no, agent FROM json_each(:step_nos) AS asked JOIN arriero_step AS step ON step.step_no = asked.value
 WHERE step.kind <> 'timer'

-- select_takeable: due requests for one Agent in their order (core.due).
-- The first ones of each App and priority are compared. A request without an App comes from a process of an older release;
-- it belongs to its task's App.
-- Params: apps (JSON array), app (that of the process; null: it has none), names (JSON array: steps with code here), head_start (of a step
-- of priority, in microseconds), probation_from, probation (steps of tasks on probation: null any, else only of this task),
-- apart (JSON array: tasks to be left alone), priority_from (none of a lower priority), barred_targets (JSON array: App, unit
-- separator, target that a breaker lets nothing through to), keyless (1: only requests without keys of limits), barred_retries
-- (1: no later attempts but those of probed), probed (as barred_targets), barred_failed (as barred_targets: no requests that failed in an outage;
-- canary is 0 then).
WITH priority (of) AS (VALUES (9), (8), (7), (6), (5), (4), (3), (2), (1), (0)),
     whose (app) AS (SELECT value FROM json_each(:apps)),
     found (position, number) AS (
    SELECT waiting.not_before - priority.of * :head_start, waiting.step_no
      FROM priority CROSS JOIN whose CROSS JOIN arriero_step AS waiting
        ON waiting.step_no IN (
           SELECT step.step_no
             FROM arriero_step AS step INDEXED BY arriero_step_takeable
            CROSS JOIN arriero_task AS task ON task.task_no = step.task_no
            WHERE step.state = 'pending' AND kind <> 'timer' AND agent = :agent AND step.app = whose.app
              AND step.priority = priority.of AND (step.app <> '' OR task.app IN ('', :app))
              AND step.not_before <= :now AND name IN (SELECT value FROM json_each(:names))
              AND (task.lost_count < :probation_from OR :probation IS NULL OR task.task_no = :probation)
              AND step.task_no NOT IN (SELECT value FROM json_each(:apart))
              AND step.app || char(31) || step.target NOT IN (SELECT value FROM json_each(:barred_targets))
              AND (NOT :keyless OR step.limit_keys IS NULL)
              AND (NOT :barred_retries OR NOT step.taken
                   OR step.app || char(31) || step.target IN (SELECT value FROM json_each(:probed)))
              AND (step.canary IS NULL
                   OR step.app || char(31) || step.target NOT IN (SELECT value FROM json_each(:barred_failed)))
            ORDER BY step.not_before, step.step_no
            LIMIT :limit)
     WHERE priority.of >= :priority_from
     ORDER BY 1, 2
     LIMIT :limit)
SELECT {step}
  FROM found CROSS JOIN arriero_step ON step_no = found.number
 ORDER BY found.position, found.number

-- select_movable: due requests for one Agent that another one may take over, in their order; see core.routing.
-- Params: as select_takeable; barred_targets is of the other Agent. closed_targets and closed_apps (JSON arrays: what the breakers of their
-- own Agent let nothing through to; it may go at once), waited_since (what was due then may go, too).
WITH priority (of) AS (VALUES (9), (8), (7), (6), (5), (4), (3), (2), (1), (0)),
     whose (app) AS (SELECT value FROM json_each(:apps)),
     found (position, number) AS (
    SELECT waiting.not_before - priority.of * :head_start, waiting.step_no
      FROM priority CROSS JOIN whose CROSS JOIN arriero_step AS waiting
        ON waiting.step_no IN (
           SELECT step.step_no
             FROM arriero_step AS step INDEXED BY arriero_step_takeable
            CROSS JOIN arriero_task AS task ON task.task_no = step.task_no
            WHERE step.state = 'pending' AND kind <> 'timer' AND agent = :agent AND step.app = whose.app
              AND step.priority = priority.of AND (step.app <> '' OR task.app IN ('', :app))
              AND step.not_before <= :now AND name IN (SELECT value FROM json_each(:names))
              AND (task.lost_count < :probation_from OR :probation IS NULL OR task.task_no = :probation)
              AND step.task_no NOT IN (SELECT value FROM json_each(:apart))
              AND step.app || char(31) || step.target NOT IN (SELECT value FROM json_each(:barred_targets))
              AND (step.routing = 'interchangeable' OR (kind = 'step' AND NOT taken))
              AND (step.not_before <= :waited_since OR step.app IN (SELECT value FROM json_each(:closed_apps))
                   OR step.app || char(31) || step.target IN (SELECT value FROM json_each(:closed_targets)))
            ORDER BY step.not_before, step.step_no
            LIMIT :limit)
     WHERE priority.of >= :priority_from
     ORDER BY 1, 2
     LIMIT :limit)
SELECT {step}
  FROM found CROSS JOIN arriero_step ON step_no = found.number
 ORDER BY found.position, found.number

-- select_expired: running steps whose time has passed, longest first.
-- Params: apart (JSON array: tasks to be left alone).
SELECT {step}
  FROM arriero_step INDEXED BY arriero_step_running
 WHERE complete_by IS NOT NULL AND complete_by <= :now
   AND step_no >> 20 NOT IN (SELECT value FROM json_each(:apart))
 ORDER BY complete_by, step_no
 LIMIT :limit

-- select_next_deadline: the earliest deadline of an attempt, a request or a task between two instants.
-- Params: now, until.
-- Rows: one; null: there is none. The rows of tasks that are set apart count: a pass too many harms nothing.
SELECT min(deadline) FROM (
    SELECT min(complete_by) AS deadline FROM arriero_step INDEXED BY arriero_step_running
     WHERE complete_by IS NOT NULL AND complete_by > :now AND complete_by <= :until
     UNION ALL
    SELECT min(wait_by) FROM arriero_step INDEXED BY arriero_step_starving
     WHERE wait_by IS NOT NULL AND state = 'pending' AND wait_by > :now AND wait_by <= :until
     UNION ALL
    SELECT min(complete_by) FROM arriero_task INDEXED BY arriero_task_limit
     WHERE complete_by IS NOT NULL AND state IN ('pending', 'processing') AND paused_at IS NULL
       AND complete_by > :now AND complete_by <= :until
)

-- select_starved: requests that nobody took within wait_within.
-- Params: apart (JSON array: tasks to be left alone).
SELECT {step}
  FROM arriero_step INDEXED BY arriero_step_starving
 WHERE wait_by IS NOT NULL AND wait_by <= :now AND state = 'pending'
   AND step_no >> 20 NOT IN (SELECT value FROM json_each(:apart))
 ORDER BY wait_by, step_no
 LIMIT :limit

-- select_takeable_of_keys: as select_takeable, for each of some keys of limits, in the order of the keys.
-- Params: those of select_takeable but limit and keyless, keys (JSON array), of_each (how many of each key).
WITH priority (of) AS (VALUES (9), (8), (7), (6), (5), (4), (3), (2), (1), (0)),
     whose (app) AS (SELECT value FROM json_each(:apps)),
     wanted (no, keys) AS (SELECT key, value FROM json_each(:keys)),
     found (no, position, number) AS (
    SELECT wanted.no, waiting.not_before - waiting.priority * :head_start, waiting.step_no
      FROM wanted CROSS JOIN arriero_step AS waiting
        ON waiting.step_no IN (
           SELECT first.step_no
             FROM priority CROSS JOIN whose CROSS JOIN arriero_step AS first
               ON first.step_no IN (
                  SELECT step.step_no
                    FROM arriero_step AS step INDEXED BY arriero_step_waiting_keys
                   CROSS JOIN arriero_task AS task ON task.task_no = step.task_no
                   WHERE step.state = 'pending' AND kind <> 'timer' AND agent = :agent AND step.app = whose.app
                     AND step.limit_keys = wanted.keys AND step.limit_keys IS NOT NULL
                     AND step.priority = priority.of AND (step.app <> '' OR task.app IN ('', :app))
                     AND step.not_before <= :now AND name IN (SELECT value FROM json_each(:names))
                     AND (task.lost_count < :probation_from OR :probation IS NULL OR task.task_no = :probation)
                     AND step.task_no NOT IN (SELECT value FROM json_each(:apart))
                     AND step.app || char(31) || step.target NOT IN (SELECT value FROM json_each(:barred_targets))
                     AND (NOT :barred_retries OR NOT step.taken
                          OR step.app || char(31) || step.target IN (SELECT value FROM json_each(:probed)))
                     AND (step.canary IS NULL
                          OR step.app || char(31) || step.target NOT IN (SELECT value FROM json_each(:barred_failed)))
                   ORDER BY step.not_before, step.step_no
                   LIMIT :of_each)
            WHERE priority.of >= :priority_from
            ORDER BY first.not_before - first.priority * :head_start, first.step_no
            LIMIT :of_each))
SELECT {step}
  FROM found CROSS JOIN arriero_step ON step_no = found.number
 ORDER BY found.no, found.position, found.number

-- select_running_attempts: attempts of some steps that are under way. Rows: step_no, fence, complete_by.
SELECT step_no, fence, complete_by FROM json_each(:step_nos) AS asked CROSS JOIN arriero_step ON step_no = asked.value
 WHERE state = 'running' ORDER BY step_no
