-- survey_requests: of each Agent the requests that are due, since when the oldest is, and those whose time has not come.
-- Params: now.
SELECT agent, count(*) FILTER (WHERE not_before <= %(now)s), min(not_before) FILTER (WHERE not_before <= %(now)s),
       count(*) FILTER (WHERE not_before > %(now)s)
  FROM {schema}.step WHERE state = 'pending' AND kind <> 'timer' AND not_before IS NOT NULL
 GROUP BY agent
 ORDER BY agent
