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

-- lock_waiting_keys: keys of an Agent that are to be looked at, in the order in which they are.
-- Params: agent, apps (JSON array), after_at, after_keys (behind this place), limit.
-- Rows: app, agent, keys, look_at.
SELECT app, agent, keys, look_at
  FROM (SELECT waiting.*
          FROM json_each(:apps) AS whose CROSS JOIN arriero_waiting_keys AS waiting
            ON waiting.rowid IN (
               SELECT one.rowid FROM arriero_waiting_keys AS one INDEXED BY arriero_waiting_keys_look
                WHERE one.agent = :agent AND one.app = whose.value AND one.look_at <= :now
                  AND (one.look_at, one.keys) > (:after_at, :after_keys)
                ORDER BY one.look_at, one.keys
                LIMIT :limit))
 ORDER BY look_at, keys, app
 LIMIT :limit

-- select_waiting_keys: keys under which requests of an Agent may wait, in their order behind one of them.
-- Params: agent, apps (JSON array), after, limit.
SELECT DISTINCT keys
  FROM (SELECT waiting.keys
          FROM json_each(:apps) AS whose CROSS JOIN arriero_waiting_keys AS waiting
            ON waiting.rowid IN (
               SELECT one.rowid FROM arriero_waiting_keys AS one
                WHERE one.app = whose.value AND one.agent = :agent AND one.keys > :after
                ORDER BY one.keys
                LIMIT :limit))
 ORDER BY keys
 LIMIT :limit

-- select_next_key_look: when keys of an Agent are looked at next that are not to be looked at yet.
-- An instant that is a text is above all numbers: it is left to select_missing_keys.
-- Params: agent, apps (JSON array).
-- Rows: one; null: there are none.
SELECT min((SELECT min(one.look_at) FROM arriero_waiting_keys AS one INDEXED BY arriero_waiting_keys_look
             WHERE one.agent = :agent AND one.app = whose.value AND one.look_at > :now
               AND one.look_at <= 9223372036854775807))
  FROM json_each(:apps) AS whose

-- select_first_due: when the first request under each of some keys is due. Each is found by a look at the index for each priority.
-- Params: agent, apps (JSON array), keys (JSON array).
-- Rows: app, keys, the instant; null: none waits.
WITH priority (of) AS (VALUES (9), (8), (7), (6), (5), (4), (3), (2), (1), (0))
SELECT whose.value, wanted.value,
       min((SELECT min(step.not_before) FROM arriero_step AS step INDEXED BY arriero_step_waiting_keys
             WHERE step.agent = :agent AND step.app = whose.value AND step.limit_keys = wanted.value
               AND step.priority = priority.of AND step.state = 'pending' AND step.limit_keys IS NOT NULL
               AND step.not_before IS NOT NULL))
  FROM json_each(:apps) AS whose CROSS JOIN json_each(:keys) AS wanted CROSS JOIN priority
 GROUP BY whose.value, wanted.value

-- note_waiting_keys: keep keys under which requests wait. Those that are to be looked at earlier stay so.
-- Params: apps, agents, keys, look_ats (JSON arrays of the same length).
INSERT INTO arriero_waiting_keys (app, agent, keys, look_at)
SELECT app.value, json_extract(:agents, app.fullkey), json_extract(:keys, app.fullkey), json_extract(:look_ats, app.fullkey)
  FROM json_each(:apps) AS app
 WHERE true
    ON CONFLICT (app, agent, keys) DO UPDATE SET look_at = min(look_at, excluded.look_at)

-- move_waiting_keys: keep when keys are looked at next.
-- Params: as note_waiting_keys.
UPDATE arriero_waiting_keys
   SET look_at = moved.look_at
  FROM (SELECT value AS app, json_extract(:agents, fullkey) AS agent, json_extract(:keys, fullkey) AS keys,
               json_extract(:look_ats, fullkey) AS look_at
          FROM json_each(:apps)) AS moved
 WHERE arriero_waiting_keys.app = moved.app AND arriero_waiting_keys.agent = moved.agent
   AND arriero_waiting_keys.keys = moved.keys

-- remove_waiting_keys: forget keys.
-- Params: as note_waiting_keys, of which look_ats says nothing.
DELETE FROM arriero_waiting_keys
 WHERE rowid IN (SELECT one.rowid
                   FROM json_each(:apps) AS app CROSS JOIN arriero_waiting_keys AS one
                     ON one.app = app.value AND one.agent = json_extract(:agents, app.fullkey)
                    AND one.keys = json_extract(:keys, app.fullkey) AND :look_ats <> '')

-- wake_waiting_keys: have all keys of an Agent looked at from now on.
-- Params: app, agent.
UPDATE arriero_waiting_keys SET look_at = :now WHERE app = :app AND agent = :agent AND look_at > :now

-- select_missing_keys: keys of any Agent under which requests wait and that have no row, or one whose instant is no number.
-- Reads the index of all requests that wait under keys.
-- Params: limit.
-- Rows: app, agent, keys, when the first request is due; in the order of the keys.
SELECT step.app, step.agent, step.limit_keys, min(step.not_before)
  FROM arriero_step AS step INDEXED BY arriero_step_waiting_keys
 WHERE step.state = 'pending' AND step.limit_keys IS NOT NULL AND step.limit_keys <> '{}' AND step.not_before IS NOT NULL
   AND NOT EXISTS (SELECT 1 FROM arriero_waiting_keys AS known
                    WHERE known.app = step.app AND known.agent = step.agent AND known.keys = step.limit_keys
                      AND known.look_at <= 9223372036854775807)
 GROUP BY step.app, step.agent, step.limit_keys
 ORDER BY step.app, step.agent, step.limit_keys
 LIMIT :limit

-- lock_old_waiting_keys: keys that were to be looked at before an instant. Rows: as lock_waiting_keys.
-- Params: before, limit.
SELECT app, agent, keys, look_at
  FROM arriero_waiting_keys INDEXED BY arriero_waiting_keys_look
 WHERE look_at < :before
 ORDER BY look_at
 LIMIT :limit

-- has_keyless: whether an Agent has steps that wait or run and were kept before it had limits.
-- Params: agent, apps (JSON array).
SELECT EXISTS (SELECT 1 FROM arriero_step INDEXED BY arriero_step_takeable
                WHERE state = 'pending' AND kind <> 'timer' AND agent = :agent AND app IN (SELECT value FROM json_each(:apps)) AND limit_keys IS NULL)
    OR EXISTS (SELECT 1 FROM arriero_step INDEXED BY arriero_step_running
                WHERE complete_by IS NOT NULL AND agent = :agent AND app IN (SELECT value FROM json_each(:apps)) AND limit_keys IS NULL)

-- select_rates: calls of an Agent's rate limits that began a short time ago, of some keys.
-- Params: app, agent, names (JSON array: of the limits), keys (JSON array).
SELECT app, agent, name, key, begun, until
  FROM arriero_rate
 WHERE app = :app AND agent = :agent AND name IN (SELECT value FROM json_each(:names))
   AND key IN (SELECT value FROM json_each(:keys))

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
