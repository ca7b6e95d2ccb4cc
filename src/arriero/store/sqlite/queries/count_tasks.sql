-- count_tasks: tasks by state.
SELECT state, count(*) FROM arriero_task GROUP BY state
