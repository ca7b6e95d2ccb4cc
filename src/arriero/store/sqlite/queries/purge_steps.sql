-- purge_steps: of one purged task.
-- Params: first, end.
DELETE FROM arriero_step WHERE step_no >= :first AND step_no < :end
