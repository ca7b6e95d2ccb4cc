-- survey_running: attempts under way, by Agent.
SELECT agent, count(*) FROM {schema}.step WHERE complete_by IS NOT NULL GROUP BY agent ORDER BY agent
