-- survey_running: attempts under way, by Agent.
SELECT agent, count(*) FROM arriero_step INDEXED BY arriero_step_running WHERE complete_by IS NOT NULL
 GROUP BY agent ORDER BY agent
