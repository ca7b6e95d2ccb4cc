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

-- lock_waiting_keys: keys of an Agent that are to be looked at, in the order in which they are; locked from now on.
-- Those that another transaction is writing are passed over: it is just bringing a request under them.
-- Params: agent, apps (list), after_at, after_keys (behind this place), limit.
-- Rows: app, agent, keys, look_at.
SELECT waiting.app, waiting.agent, waiting.keys, waiting.look_at
  FROM unnest(%(apps)s::text[]) AS whose (app),
       LATERAL (SELECT one.app, one.agent, one.keys, one.look_at FROM {schema}.waiting_keys AS one
                 WHERE one.agent = %(agent)s AND one.app = whose.app AND one.look_at <= %(now)s
                   AND (one.look_at, one.keys) > (%(after_at)s, %(after_keys)s)
                 ORDER BY one.look_at, one.keys
                 LIMIT %(limit)s
                   FOR NO KEY UPDATE SKIP LOCKED) AS waiting
 ORDER BY waiting.look_at, waiting.keys, waiting.app
 LIMIT %(limit)s

-- select_waiting_keys: keys under which requests of an Agent may wait, in their order behind one of them.
-- Params: agent, apps (list), after, limit.
SELECT DISTINCT waiting.keys
  FROM unnest(%(apps)s::text[]) AS whose (app),
       LATERAL (SELECT one.keys FROM {schema}.waiting_keys AS one
                 WHERE one.app = whose.app AND one.agent = %(agent)s AND one.keys > %(after)s
                 ORDER BY one.app, one.agent, one.keys
                 LIMIT %(limit)s) AS waiting
 ORDER BY waiting.keys
 LIMIT %(limit)s

-- select_next_key_look: when keys of an Agent are looked at next that are not to be looked at yet.
-- Params: agent, apps (list).
-- Rows: one; null: there are none.
SELECT min((SELECT min(one.look_at) FROM {schema}.waiting_keys AS one
             WHERE one.agent = %(agent)s AND one.app = whose.app AND one.look_at > %(now)s))
  FROM unnest(%(apps)s::text[]) AS whose (app)

-- select_first_due: when the first request under each of some keys is due. Each is found by a look at the index for each priority.
-- Params: agent, apps (list), keys (list).
-- Rows: app, keys, the instant; null: none waits.
SELECT whose.app, wanted.keys,
       min((SELECT min(step.not_before) FROM {schema}.step AS step
             WHERE step.agent = %(agent)s AND step.app = whose.app AND step.limit_keys = wanted.keys
               AND step.priority = level.priority AND step.state = 'pending' AND step.limit_keys IS NOT NULL
               AND step.not_before IS NOT NULL))
  FROM unnest(%(apps)s::text[]) AS whose (app), unnest(%(keys)s::text[]) AS wanted (keys),
       (VALUES (9), (8), (7), (6), (5), (4), (3), (2), (1), (0)) AS level (priority)
 GROUP BY whose.app, wanted.keys

-- note_waiting_keys: keep keys under which requests wait. Those that are to be looked at earlier stay so.
-- In the order of the keys, so that two transactions that bring requests under the same keys wait for each other in turn.
-- Params: apps, agents, keys, look_ats (lists of the same length, in the order of the keys).
INSERT INTO {schema}.waiting_keys AS waiting (app, agent, keys, look_at)
SELECT * FROM unnest(%(apps)s::text[], %(agents)s::text[], %(keys)s::text[], %(look_ats)s::bigint[])
    ON CONFLICT (app, agent, keys) DO UPDATE SET look_at = least(waiting.look_at, excluded.look_at)

-- move_waiting_keys: keep when keys are looked at next. They are locked.
-- Params: as note_waiting_keys.
UPDATE {schema}.waiting_keys AS waiting
   SET look_at = moved.look_at
  FROM unnest(%(apps)s::text[], %(agents)s::text[], %(keys)s::text[], %(look_ats)s::bigint[])
       AS moved (app, agent, keys, look_at)
 WHERE waiting.app = moved.app AND waiting.agent = moved.agent AND waiting.keys = moved.keys

-- remove_waiting_keys: forget keys. They are locked.
-- Params: as note_waiting_keys, of which look_ats says nothing.
DELETE FROM {schema}.waiting_keys AS waiting
 USING unnest(%(apps)s::text[], %(agents)s::text[], %(keys)s::text[], %(look_ats)s::bigint[])
       AS removed (app, agent, keys, look_at)
 WHERE waiting.app = removed.app AND waiting.agent = removed.agent AND waiting.keys = removed.keys

-- wake_waiting_keys: have all keys of an Agent looked at from now on.
-- Params: app, agent.
UPDATE {schema}.waiting_keys SET look_at = %(now)s WHERE app = %(app)s AND agent = %(agent)s AND look_at > %(now)s

-- select_missing_keys: keys of any Agent under which requests wait and that have no row.
-- Reads the index of all requests that wait under keys.
-- Params: limit.
-- Rows: app, agent, keys, when the first request is due; in the order of the keys.
SELECT step.app, step.agent, step.limit_keys, min(step.not_before)
  FROM {schema}.step AS step
 WHERE step.state = 'pending' AND step.limit_keys IS NOT NULL AND step.limit_keys <> '{}' AND step.not_before IS NOT NULL
   AND NOT EXISTS (SELECT 1 FROM {schema}.waiting_keys AS known
                    WHERE known.app = step.app AND known.agent = step.agent AND known.keys = step.limit_keys)
 GROUP BY step.app, step.agent, step.limit_keys
 ORDER BY step.app, step.agent, step.limit_keys
 LIMIT %(limit)s

-- lock_old_waiting_keys: keys that were to be looked at before an instant, locked from now on. Rows: as lock_waiting_keys.
-- Params: before, limit.
SELECT app, agent, keys, look_at
  FROM {schema}.waiting_keys
 WHERE look_at < %(before)s
 ORDER BY look_at
 LIMIT %(limit)s
   FOR NO KEY UPDATE SKIP LOCKED

-- has_keyless: whether an Agent has steps that wait or run and were kept before it had limits.
-- Params: agent, apps (list).
SELECT EXISTS (SELECT 1 FROM {schema}.step
                WHERE state = 'pending' AND kind <> 'timer' AND not_before IS NOT NULL
                  AND agent = %(agent)s AND app = ANY(%(apps)s::text[]) AND limit_keys IS NULL)
    OR EXISTS (SELECT 1 FROM {schema}.step
                WHERE complete_by IS NOT NULL AND agent = %(agent)s AND app = ANY(%(apps)s::text[]) AND limit_keys IS NULL)

-- select_rates: calls of an Agent's rate limits that began a short time ago, of some keys.
-- Params: app, agent, names (list: of the limits), keys (list).
SELECT app, agent, name, key, begun, until
  FROM {schema}.rate
 WHERE app = %(app)s AND agent = %(agent)s AND name = ANY(%(names)s::text[]) AND key = ANY(%(keys)s::text[])

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
