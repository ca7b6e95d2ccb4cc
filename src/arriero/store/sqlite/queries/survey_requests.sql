-- survey_requests: of each Agent the requests that are due, since when the oldest is, and those whose time has not come.
-- Params: now.
SELECT agent, sum(not_before <= :now), min(CASE WHEN not_before <= :now THEN not_before END), sum(not_before > :now)
  FROM arriero_step INDEXED BY arriero_step_takeable
 WHERE state = 'pending' AND kind <> 'timer' AND not_before IS NOT NULL
 GROUP BY agent
 ORDER BY agent
