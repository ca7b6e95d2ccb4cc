-- select_limits: limits of some Agents, of any App.
-- Params: agents (JSON array).
SELECT app, agent, limits, process_no, declared_at, has_keyless, look_at, last_keys
  FROM arriero_agent_limits
 WHERE agent IN (SELECT value FROM json_each(:agents)) AND limits <> '[]'

-- lock_limits: limits of some Agents of one App.
-- Params: agents (JSON array), app.
SELECT app, agent, limits, process_no, declared_at, has_keyless, look_at, last_keys
  FROM arriero_agent_limits
 WHERE app = :app AND agent IN (SELECT value FROM json_each(:agents))
 ORDER BY agent

-- list_limits: all limits that were ever declared and hold.
SELECT app, agent, limits, process_no, declared_at, has_keyless, look_at, last_keys
  FROM arriero_agent_limits
 WHERE limits <> '[]'
 ORDER BY agent, app

-- put_limits: keep the limits of an Agent as they stand now.
INSERT INTO arriero_agent_limits (app, agent, limits, process_no, declared_at, has_keyless, look_at, last_keys)
VALUES (:app, :agent, :limits, :process_no, :declared_at, :has_keyless, :look_at, :last_keys)
    ON CONFLICT (app, agent) DO UPDATE
   SET limits = excluded.limits, process_no = excluded.process_no, declared_at = excluded.declared_at,
       has_keyless = excluded.has_keyless, look_at = excluded.look_at,
       last_keys = excluded.last_keys

-- count_running_keys: attempts of an Agent under way, by what its limits count them under.
-- Params: agent, apps (JSON array), since (attempts whose time was over before do not count).
SELECT limit_keys, count(*)
  FROM arriero_step INDEXED BY arriero_step_running_keys
 WHERE agent = :agent AND app IN (SELECT value FROM json_each(:apps)) AND state = 'running' AND limit_keys IS NOT NULL
   AND complete_by > :since
 GROUP BY limit_keys
 ORDER BY limit_keys

-- count_running_keyless: attempts of an Agent under way that were kept before it had limits.
-- Params: agent, apps (JSON array), since (attempts whose time was over before do not count).
SELECT count(*)
  FROM arriero_step INDEXED BY arriero_step_running
 WHERE complete_by IS NOT NULL AND complete_by > :since AND state = 'running' AND agent = :agent AND app IN (SELECT value FROM json_each(:apps)) AND limit_keys IS NULL

-- select_waiting_keys: keys under which requests of an Agent wait, in their order behind one of them.
-- Each is found by one look at the index, however many requests wait under it.
-- Params: agent, own (the App of the process), after, limit.
WITH RECURSIVE found (keys) AS (
    SELECT :after
     UNION ALL
    SELECT (SELECT min(next.keys)
              FROM (SELECT (SELECT min(step.limit_keys) FROM arriero_step AS step INDEXED BY arriero_step_waiting_keys
                             WHERE step.agent = :agent AND step.app = '' AND step.state = 'pending'
                               AND step.limit_keys IS NOT NULL AND step.limit_keys > found.keys) AS keys
                     UNION ALL
                    SELECT (SELECT min(step.limit_keys) FROM arriero_step AS step INDEXED BY arriero_step_waiting_keys
                             WHERE step.agent = :agent AND step.app = :own AND step.state = 'pending'
                               AND step.limit_keys IS NOT NULL AND step.limit_keys > found.keys)) AS next)
      FROM found WHERE found.keys IS NOT NULL)
SELECT keys FROM found WHERE keys IS NOT NULL AND keys <> :after LIMIT :limit

-- has_keyless: whether an Agent has steps that wait or run and were kept before it had limits.
-- Params: agent, apps (JSON array).
SELECT EXISTS (SELECT 1 FROM arriero_step INDEXED BY arriero_step_takeable
                WHERE state = 'pending' AND kind <> 'timer' AND agent = :agent AND app IN (SELECT value FROM json_each(:apps)) AND limit_keys IS NULL)
    OR EXISTS (SELECT 1 FROM arriero_step INDEXED BY arriero_step_running
                WHERE complete_by IS NOT NULL AND agent = :agent AND app IN (SELECT value FROM json_each(:apps)) AND limit_keys IS NULL)

-- select_rates: calls of an Agent's rate limits that began a short time ago, of some keys.
-- Params: app, agent, keys (JSON array).
SELECT app, agent, name, key, begun, until
  FROM arriero_rate
 WHERE app = :app AND agent = :agent AND key IN (SELECT value FROM json_each(:keys))

-- list_rates: calls of an Agent's rate limits that began a short time ago.
SELECT app, agent, name, key, begun, until
  FROM arriero_rate
 WHERE app = :app AND agent = :agent AND until > :now
 ORDER BY name, key

-- put_rate: keep the calls of a rate limit as they stand now.
INSERT INTO arriero_rate (app, agent, name, key, begun, until)
VALUES (:app, :agent, :name, :key, :begun, :until)
    ON CONFLICT (app, agent, name, key) DO UPDATE SET begun = excluded.begun, until = excluded.until

-- remove_old_rates: remove what says nothing any more.
-- Params: before.
DELETE FROM arriero_rate WHERE until <= :before
