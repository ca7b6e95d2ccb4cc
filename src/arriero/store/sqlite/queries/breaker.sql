-- select_breakers: breakers of some Agents, of any App, that are not closed, are paused, or were closed since an instant.
-- Params: agents (JSON array), since.
SELECT app, agent, target, state, fence, policy, changed_at, opened_at, failing_since, closed_at, probe_at,
       ramp_from, wave, granted, succeeded, failed, reason, opened_by, paused_at, paused_by, pause_reason
  FROM arriero_breaker
 WHERE agent IN (SELECT value FROM json_each(:agents)) AND (state <> 'closed' OR paused_at IS NOT NULL OR closed_at > :since)
 ORDER BY app, agent, target

-- lock_breaker: one breaker. Zero rows: it was never opened or paused.
SELECT app, agent, target, state, fence, policy, changed_at, opened_at, failing_since, closed_at, probe_at,
       ramp_from, wave, granted, succeeded, failed, reason, opened_by, paused_at, paused_by, pause_reason
  FROM arriero_breaker
 WHERE app = :app AND agent = :agent AND target = :target

-- select_half_open_breakers: breakers that let only some requests through.
SELECT app, agent, target, state, fence, policy, changed_at, opened_at, failing_since, closed_at, probe_at,
       ramp_from, wave, granted, succeeded, failed, reason, opened_by, paused_at, paused_by, pause_reason
  FROM arriero_breaker
 WHERE state = 'half_open'
 ORDER BY agent, app, target

-- list_breakers: all breakers that were ever opened or paused.
SELECT app, agent, target, state, fence, policy, changed_at, opened_at, failing_since, closed_at, probe_at,
       ramp_from, wave, granted, succeeded, failed, reason, opened_by, paused_at, paused_by, pause_reason
  FROM arriero_breaker
 ORDER BY agent, app, target

-- put_breaker: keep a breaker as it stands now.
INSERT INTO arriero_breaker (app, agent, target, state, fence, policy, changed_at, opened_at, failing_since, closed_at, probe_at,
                             ramp_from, wave, granted, succeeded, failed, reason, opened_by, paused_at, paused_by, pause_reason)
VALUES (:app, :agent, :target, :state, :fence, :policy, :changed_at, :opened_at, :failing_since, :closed_at,
        :probe_at, :ramp_from, :wave, :granted, :succeeded, :failed, :reason, :opened_by, :paused_at, :paused_by,
        :pause_reason)
    ON CONFLICT (app, agent, target) DO UPDATE
   SET state = excluded.state, fence = excluded.fence, policy = excluded.policy, changed_at = excluded.changed_at,
      opened_at = excluded.opened_at, failing_since = excluded.failing_since, closed_at = excluded.closed_at,
      probe_at = excluded.probe_at, ramp_from = excluded.ramp_from, wave = excluded.wave, granted =
      excluded.granted, succeeded = excluded.succeeded, failed = excluded.failed, reason = excluded.reason,
      opened_by = excluded.opened_by, paused_at = excluded.paused_at, paused_by = excluded.paused_by, pause_reason =
      excluded.pause_reason
