-- put_agent_counts: keep what a process counted in one minute, as it stands now. Nothing is kept of a process that is retired
-- or unknown, and nothing if the kept row has more calls: then this is a write that came late.
INSERT INTO {schema}.agent_metrics AS kept (app, process_no, minute, calls, counts)
SELECT %(app)s, process_no, %(minute)s, %(calls)s, %(counts)s FROM {schema}.process
 WHERE process_no = %(process_no)s AND NOT retired
    ON CONFLICT (app, process_no, minute) DO UPDATE
   SET calls = excluded.calls, counts = excluded.counts WHERE excluded.calls >= kept.calls

-- select_agent_counts: all that is kept; the sum of each App is that of process 0.
SELECT app, process_no, minute, calls, counts FROM {schema}.agent_metrics ORDER BY app, process_no, minute

-- select_apps_to_fold: Apps with counts of minutes before that one.
SELECT DISTINCT app FROM {schema}.agent_metrics WHERE process_no > 0 AND minute < %(before)s ORDER BY app

-- add_agent_total: the sum of an App, without a call, unless there is one.
INSERT INTO {schema}.agent_metrics (app, process_no, minute, calls, counts) VALUES (%(app)s, 0, 0, 0, '{}')
    ON CONFLICT (app, process_no, minute) DO NOTHING

-- lock_agent_total: the sum of an App, locked until the transaction ends. Rows: one, if it was added before.
SELECT app, process_no, minute, calls, counts FROM {schema}.agent_metrics
 WHERE app = %(app)s AND process_no = 0 AND minute = 0
   FOR NO KEY UPDATE

-- put_agent_total: keep the sum of an App that this transaction has locked.
UPDATE {schema}.agent_metrics SET calls = %(calls)s, counts = %(counts)s
 WHERE app = %(app)s AND process_no = 0 AND minute = 0

-- select_agent_counts_before: counts of an App in minutes before that one, but for its sum, locked until the transaction ends.
SELECT app, process_no, minute, calls, counts FROM {schema}.agent_metrics
 WHERE app = %(app)s AND process_no > 0 AND minute < %(before)s
 ORDER BY minute, process_no LIMIT %(limit)s
   FOR UPDATE

-- remove_agent_counts: remove what a process counted in one minute.
DELETE FROM {schema}.agent_metrics WHERE app = %(app)s AND process_no = %(process_no)s AND minute = %(minute)s

-- measure_requests: for each Agent of an App the due requests, since when the oldest is due, and those that are not due yet.
SELECT app, agent, count(*) FILTER (WHERE not_before <= %(now)s), min(not_before) FILTER (WHERE not_before <= %(now)s),
       count(*) FILTER (WHERE not_before > %(now)s)
  FROM {schema}.step WHERE state = 'pending' AND kind <> 'timer' AND not_before IS NOT NULL
 GROUP BY agent, app

-- measure_running: attempts under way, by App and Agent.
SELECT app, agent, count(*) FROM {schema}.step WHERE complete_by IS NOT NULL GROUP BY app, agent
