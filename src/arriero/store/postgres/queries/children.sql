-- select_children: tasks that are steps of others, by the numbers of those steps.
SELECT {task} FROM {schema}.task WHERE parent_step = ANY(%(step_nos)s::bigint[])

-- lock_child_steps: steps that are to be tasks, kept as they are until the transaction ends.
SELECT {step} FROM {schema}.step WHERE step_no = ANY(%(step_nos)s::bigint[]) ORDER BY step_no FOR SHARE

-- lock_child_step: a step of which no task is to be submitted until the transaction ends.
SELECT step_no FROM {schema}.step WHERE step_no = %(step_no)s FOR NO KEY UPDATE
