-- put_agent_counts: keep what a process counted in one minute, as it stands now. Nothing is kept of a process that is retired
-- or unknown, and nothing if the kept row has more calls: then this is a write that came late.
INSERT INTO arriero_agent_metrics (app, process_no, minute, calls, counts)
SELECT :app, process_no, :minute, :calls, :counts FROM arriero_process WHERE process_no = :process_no AND NOT retired
    ON CONFLICT (app, process_no, minute) DO UPDATE
   SET calls = excluded.calls, counts = excluded.counts WHERE excluded.calls >= arriero_agent_metrics.calls

-- select_agent_counts: all that is kept; the sum of each App is that of process 0.
SELECT app, process_no, minute, calls, counts FROM arriero_agent_metrics ORDER BY app, process_no, minute

-- select_apps_to_fold: Apps with counts of minutes before that one.
SELECT DISTINCT app FROM arriero_agent_metrics WHERE process_no > 0 AND minute < :before ORDER BY app

-- add_agent_total: the sum of an App, without a call, unless there is one.
INSERT INTO arriero_agent_metrics (app, process_no, minute, calls, counts) VALUES (:app, 0, 0, 0, '{}')
    ON CONFLICT (app, process_no, minute) DO NOTHING

-- lock_agent_total: the sum of an App. Rows: one, if it was added before.
SELECT app, process_no, minute, calls, counts FROM arriero_agent_metrics
 WHERE app = :app AND process_no = 0 AND minute = 0

-- put_agent_total: keep the sum of an App that this transaction has locked.
UPDATE arriero_agent_metrics SET calls = :calls, counts = :counts WHERE app = :app AND process_no = 0 AND minute = 0

-- select_agent_counts_before: counts of an App in minutes before that one, but for its sum.
SELECT app, process_no, minute, calls, counts FROM arriero_agent_metrics
 WHERE app = :app AND process_no > 0 AND minute < :before
 ORDER BY minute, process_no LIMIT :limit

-- remove_agent_counts: remove what a process counted in one minute.
DELETE FROM arriero_agent_metrics WHERE app = :app AND process_no = :process_no AND minute = :minute

-- measure_requests: for each Agent of an App the due requests, since when the oldest is due, and those that are not due yet.
SELECT app, agent, sum(not_before <= :now), min(CASE WHEN not_before <= :now THEN not_before END), sum(not_before > :now)
  FROM arriero_step INDEXED BY arriero_step_takeable
 WHERE state = 'pending' AND kind <> 'timer' AND not_before IS NOT NULL
 GROUP BY agent, app

-- measure_running: attempts under way, by App and Agent.
SELECT app, agent, count(*) FROM arriero_step INDEXED BY arriero_step_running WHERE complete_by IS NOT NULL
 GROUP BY agent, app
