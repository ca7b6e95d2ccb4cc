-- select_of_sequences: tasks by their convoy's key and their number in its sequence, with what was submitted.
-- Params: keys, sequences (side by side).
SELECT {t.task}, coalesce(body.asked, body.arguments)
  FROM unnest(%(keys)s::text[], %(sequences)s::bigint[]) AS wanted (key, sequence)
  JOIN {schema}.convoy_tail AS tail ON tail.key = wanted.key
  JOIN {schema}.task AS t ON t.convoy_no = tail.convoy_no AND t.sequence = wanted.sequence
  LEFT JOIN {schema}.body AS body ON body.task_no = t.task_no
