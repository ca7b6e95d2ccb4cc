-- count_tasks: tasks by state.
SELECT state, count(*) FROM {schema}.task GROUP BY state
