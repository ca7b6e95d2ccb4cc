-- select_limits: limits of some Agents, of any App.
-- Params: agents (list).
SELECT app, agent, limits, process_no, declared_at, has_keyless, look_at, last_keys
  FROM {schema}.agent_limits
 WHERE agent = ANY(%(agents)s::text[]) AND limits <> '[]'

-- lock_limits: limits of some Agents of one App, locked from now on.
-- Params: agents (list), app.
SELECT app, agent, limits, process_no, declared_at, has_keyless, look_at, last_keys
  FROM {schema}.agent_limits
 WHERE app = %(app)s AND agent = ANY(%(agents)s::text[])
 ORDER BY agent
   FOR NO KEY UPDATE

-- list_limits: all limits that were ever declared and hold.
SELECT app, agent, limits, process_no, declared_at, has_keyless, look_at, last_keys
  FROM {schema}.agent_limits
 WHERE limits <> '[]'
 ORDER BY agent, app

-- put_limits: keep the limits of an Agent as they stand now.
INSERT INTO {schema}.agent_limits (app, agent, limits, process_no, declared_at, has_keyless, look_at, last_keys)
VALUES (%(app)s, %(agent)s, %(limits)s, %(process_no)s, %(declared_at)s, %(has_keyless)s, %(look_at)s, %(last_keys)s)
    ON CONFLICT (app, agent) DO UPDATE
   SET limits = excluded.limits, process_no = excluded.process_no, declared_at = excluded.declared_at,
       has_keyless = excluded.has_keyless, look_at = excluded.look_at,
       last_keys = excluded.last_keys

-- count_running_keys: attempts of an Agent under way, by what its limits count them under.
-- Params: agent, apps (list), since (attempts whose time was over before do not count).
SELECT limit_keys, count(*)
  FROM {schema}.step
 WHERE agent = %(agent)s AND app = ANY(%(apps)s::text[]) AND state = 'running' AND limit_keys IS NOT NULL
   AND complete_by > %(since)s
 GROUP BY limit_keys
 ORDER BY limit_keys

-- count_running_keyless: attempts of an Agent under way that were kept before it had limits.
-- Params: agent, apps (list), since (attempts whose time was over before do not count).
SELECT count(*)
  FROM {schema}.step
 WHERE complete_by > %(since)s AND state = 'running' AND agent = %(agent)s AND app = ANY(%(apps)s::text[]) AND limit_keys IS NULL

-- select_waiting_keys: keys under which requests of an Agent wait, in their order behind one of them.
-- Each is found by one look at the index, however many requests wait under it.
-- Params: agent, own (the App of the process), after, limit.
WITH RECURSIVE found (keys) AS (
    SELECT %(after)s::text COLLATE "C"
     UNION ALL
    SELECT (SELECT min(next.keys)
              FROM (SELECT (SELECT min(step.limit_keys) FROM {schema}.step AS step
                             WHERE step.agent = %(agent)s AND step.app = '' AND step.state = 'pending'
                               AND step.limit_keys IS NOT NULL AND step.limit_keys > found.keys) AS keys
                     UNION ALL
                    SELECT (SELECT min(step.limit_keys) FROM {schema}.step AS step
                             WHERE step.agent = %(agent)s AND step.app = %(own)s AND step.state = 'pending'
                               AND step.limit_keys IS NOT NULL AND step.limit_keys > found.keys)) AS next)
      FROM found WHERE found.keys IS NOT NULL)
SELECT keys FROM found WHERE keys IS NOT NULL AND keys <> %(after)s LIMIT %(limit)s

-- has_keyless: whether an Agent has steps that wait or run and were kept before it had limits.
-- Params: agent, apps (list).
SELECT EXISTS (SELECT 1 FROM {schema}.step
                WHERE state = 'pending' AND kind <> 'timer' AND not_before IS NOT NULL
                  AND agent = %(agent)s AND app = ANY(%(apps)s::text[]) AND limit_keys IS NULL)
    OR EXISTS (SELECT 1 FROM {schema}.step
                WHERE complete_by IS NOT NULL AND agent = %(agent)s AND app = ANY(%(apps)s::text[]) AND limit_keys IS NULL)

-- select_rates: calls of an Agent's rate limits that began a short time ago, of some keys.
-- Params: app, agent, keys (list).
SELECT app, agent, name, key, begun, until
  FROM {schema}.rate
 WHERE app = %(app)s AND agent = %(agent)s AND key = ANY(%(keys)s::text[])

-- list_rates: calls of an Agent's rate limits that began a short time ago.
SELECT app, agent, name, key, begun, until
  FROM {schema}.rate
 WHERE app = %(app)s AND agent = %(agent)s AND until > %(now)s
 ORDER BY name, key

-- put_rate: keep the calls of a rate limit as they stand now.
INSERT INTO {schema}.rate (app, agent, name, key, begun, until)
VALUES (%(app)s, %(agent)s, %(name)s, %(key)s, %(begun)s, %(until)s)
    ON CONFLICT (app, agent, name, key) DO UPDATE SET begun = excluded.begun, until = excluded.until

-- remove_old_rates: remove what says nothing any more.
-- Params: before.
DELETE FROM {schema}.rate WHERE until <= %(before)s
