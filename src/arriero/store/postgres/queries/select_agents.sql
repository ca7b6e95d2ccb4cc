-- select_agents: the Agents of steps. Missing: a step that is gone, or a timer.
-- Params: step_nos.
SELECT step_no, agent FROM {schema}.step WHERE step_no = ANY(%(step_nos)s::bigint[]) AND kind <> 'timer'
