-- select_breakers: breakers of some Agents, of any App, that are not closed, are paused, or were closed since an instant.
SELECT app, agent, target, state, fence, policy, changed_at, opened_at, failing_since, closed_at, probe_at,
       ramp_from, wave, granted, succeeded, failed, reason, opened_by, paused_at, paused_by, pause_reason
  FROM {schema}.breaker
 WHERE agent = ANY(%(agents)s::text[]) AND (state <> 'closed' OR paused_at IS NOT NULL OR closed_at > %(since)s)
 ORDER BY app, agent, target

-- lock_breaker: one breaker, locked until the transaction ends. Zero rows: it was never opened or paused.
SELECT app, agent, target, state, fence, policy, changed_at, opened_at, failing_since, closed_at, probe_at,
       ramp_from, wave, granted, succeeded, failed, reason, opened_by, paused_at, paused_by, pause_reason
  FROM {schema}.breaker
 WHERE app = %(app)s AND agent = %(agent)s AND target = %(target)s
   FOR NO KEY UPDATE

-- add_breaker: a closed breaker under that key, unless there is one.
INSERT INTO {schema}.breaker (app, agent, target, state, fence, policy, changed_at, opened_at, failing_since, closed_at, probe_at,
                             ramp_from, wave, granted, succeeded, failed, reason, opened_by, paused_at, paused_by, pause_reason)
VALUES (%(app)s, %(agent)s, %(target)s, %(state)s, %(fence)s, %(policy)s, %(changed_at)s, %(opened_at)s,
        %(failing_since)s, %(closed_at)s, %(probe_at)s, %(ramp_from)s, %(wave)s, %(granted)s, %(succeeded)s,
        %(failed)s, %(reason)s, %(opened_by)s, %(paused_at)s, %(paused_by)s, %(pause_reason)s)
    ON CONFLICT (app, agent, target) DO NOTHING

-- select_half_open_breakers: breakers that let only some requests through.
SELECT app, agent, target, state, fence, policy, changed_at, opened_at, failing_since, closed_at, probe_at,
       ramp_from, wave, granted, succeeded, failed, reason, opened_by, paused_at, paused_by, pause_reason
  FROM {schema}.breaker
 WHERE state = 'half_open'
 ORDER BY agent, app, target

-- list_breakers: all breakers that were ever opened or paused.
SELECT app, agent, target, state, fence, policy, changed_at, opened_at, failing_since, closed_at, probe_at,
       ramp_from, wave, granted, succeeded, failed, reason, opened_by, paused_at, paused_by, pause_reason
  FROM {schema}.breaker
 ORDER BY agent, app, target

-- put_breaker: keep a breaker that this transaction has locked as it stands now.
UPDATE {schema}.breaker
   SET state = %(state)s, fence = %(fence)s, policy = %(policy)s, changed_at = %(changed_at)s, opened_at =
       %(opened_at)s, failing_since = %(failing_since)s, closed_at = %(closed_at)s, probe_at = %(probe_at)s,
       ramp_from = %(ramp_from)s, wave = %(wave)s, granted = %(granted)s, succeeded = %(succeeded)s, failed =
       %(failed)s, reason = %(reason)s, opened_by = %(opened_by)s, paused_at = %(paused_at)s, paused_by =
       %(paused_by)s, pause_reason = %(pause_reason)s
 WHERE app = %(app)s AND agent = %(agent)s AND target = %(target)s
