-- survey_steps: Apps, Agents and names of requests that are due.
-- Params: now.
SELECT DISTINCT app, agent, name FROM {schema}.step
 WHERE state = 'pending' AND kind <> 'timer' AND not_before <= %(now)s
 ORDER BY app, agent, name
