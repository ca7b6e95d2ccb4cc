-- select_named_steps: some steps.
-- Params: step_nos.
SELECT {step} FROM {schema}.step WHERE step_no = ANY(%(step_nos)s)
