-- add_convoys: rows for keys that nobody used before. What is submitted under a known id makes no key: it is refused, or its
-- convoy is there.
-- Params: keys, orderings, task_ids (side by side; null: whatever is known), given (the clock of a test).
SELECT {schema}.add_convoys(array_agg(w.key ORDER BY w.nth), array_agg(w.ordering ORDER BY w.nth), %(given)s)
  FROM unnest(%(keys)s::text[], %(orderings)s::text[], %(task_ids)s::text[]) WITH ORDINALITY AS w (key, ordering, task_id, nth)
 WHERE NOT EXISTS (SELECT 1 FROM {schema}.convoy_tail AS t WHERE t.key = w.key)
   AND NOT EXISTS (SELECT 1 FROM {schema}.task AS t WHERE t.task_id = w.task_id)
