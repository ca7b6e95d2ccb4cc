-- select_agents: the Agents of steps. Missing: a step that is gone, or a timer.
-- Params: step_nos (JSON array).
SELECT step_no, agent FROM json_each(:step_nos) AS asked JOIN arriero_step AS step ON step.step_no = asked.value
 WHERE step.kind <> 'timer'
