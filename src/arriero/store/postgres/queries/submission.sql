-- keep_task: insert a task in the caller's transaction.
-- Params: store_id (null: any); submission (JSON text in ASCII: the fields of commands.Submit, and given, the clock of a
-- test, else null).
-- Rows: one, as texts: the number of the new or known task, the verdict, the id of a task with the same sequence, and the
-- end of its convoy in JSON.
SELECT task_no::text, verdict, known_id, tail::text FROM {schema}.keep_task(%(store_id)s::text, %(submission)s::json)

-- select_known: tasks by their business ids, with their submitted arguments, locked until the transaction ends: our commit also
-- confirms one whose answer was lost.
SELECT {t.task}, coalesce(body.asked, body.arguments)
  FROM {schema}.task AS t LEFT JOIN {schema}.body AS body ON body.task_no = t.task_no
 WHERE t.task_id = ANY(%(task_ids)s)
 ORDER BY t.task_no
   FOR NO KEY UPDATE OF t

-- lock_submitter: whoever submits for a capped submitter waits here until others that do so have committed.
SELECT pg_advisory_xact_lock(hashtextextended('arriero submitter {schema} ' || %(submitter)s::text, 0))

-- count_open_tasks: number of open tasks of a submitter; no more are counted than limit.
SELECT count(*) FROM (
  SELECT 1 FROM {schema}.task
   WHERE submitter = %(submitter)s AND state NOT IN ('processed', 'compensated', 'error')
   LIMIT %(limit)s) AS counted

-- take_numbers: numbers for new tasks, at least one, none used twice, each with the store's clock.
-- Params: count, given (the clock of a test, else null).
SELECT nextval('{schema}.task_number'), {now} FROM generate_series(1, %(count)s)

-- select_beginner: true if a process start may begin tasks. Zero rows: there is no such process start.
-- An operator who pauses a workflow waits until the transaction ends (lock_submitters).
SELECT NOT process.retired AND EXISTS (
         SELECT 1 FROM {schema}.writer WHERE writer.process_no = process.process_no AND writer.epoch = %(epoch)s)
  FROM {schema}.process WHERE process.process_no = %(process_no)s FOR KEY SHARE OF process

-- add_convoys: rows for keys that are not known yet. A submission under a known id makes no key: it is refused, or its convoy is there.
-- Params: keys, orderings, task_ids (side by side; null: none), given (the clock of a test).
SELECT {schema}.add_convoys(array_agg(w.key ORDER BY w.nth), array_agg(w.ordering ORDER BY w.nth), %(given)s)
  FROM unnest(%(keys)s::text[], %(orderings)s::text[], %(task_ids)s::text[]) WITH ORDINALITY AS w (key, ordering, task_id, nth)
 WHERE NOT EXISTS (SELECT 1 FROM {schema}.convoy_tail AS t WHERE t.key = w.key)
   AND NOT EXISTS (SELECT 1 FROM {schema}.task AS t WHERE t.task_id = w.task_id)

-- lock_tails: the ends of convoys, locked until the transaction ends: places are given in the order of commits.
SELECT {tail} FROM {schema}.convoy_tail WHERE key = ANY(%(keys)s) ORDER BY convoy_no FOR NO KEY UPDATE

-- select_tails_by_key: the ends of convoys by their keys.
SELECT {tail} FROM {schema}.convoy_tail WHERE key = ANY(%(keys)s)

-- order_convoy: set the ordering of a convoy without tasks.
UPDATE {schema}.convoy_tail SET ordering = %(ordering)s WHERE convoy_no = %(convoy_no)s AND placed = 0

-- lock_asking: convoys of keys where a new task may be next, locked until the transaction ends.
SELECT {c.convoy} FROM {schema}.convoy AS c JOIN {schema}.convoy_tail AS tail ON tail.convoy_no = c.convoy_no
 WHERE tail.key = ANY(%(keys)s) AND tail.asks
 ORDER BY c.convoy_no
   FOR NO KEY UPDATE OF c

-- lock_touched: convoys that a new task may change or that may refuse it, read after their ends were locked; locked until the
-- transaction ends.
-- Params: convoy_nos; numbered (those with a task that has a sequence).
SELECT {c.convoy} FROM {schema}.convoy AS c JOIN {schema}.convoy_tail AS tail ON tail.convoy_no = c.convoy_no
 WHERE c.convoy_no = ANY(%(convoy_nos)s)
   AND (tail.asks OR tail.ordering = 'sequence' OR tail.end_rank IS NOT NULL OR c.convoy_no = ANY(%(numbered)s))
 ORDER BY c.convoy_no
   FOR NO KEY UPDATE OF c

-- select_expected: the next number of the sequence of each key.
SELECT c.convoy_no, c.expected FROM {schema}.convoy AS c JOIN {schema}.convoy_tail AS tail ON tail.convoy_no = c.convoy_no
 WHERE tail.key = ANY(%(keys)s)

-- select_of_sequences: tasks by their convoy's key and their number in its sequence, with their submitted arguments.
-- Params: keys, sequences (side by side).
SELECT {t.task}, coalesce(body.asked, body.arguments)
  FROM unnest(%(keys)s::text[], %(sequences)s::bigint[]) AS wanted (key, sequence)
  JOIN {schema}.convoy_tail AS tail ON tail.key = wanted.key
  JOIN {schema}.task AS t ON t.convoy_no = tail.convoy_no AND t.sequence = wanted.sequence
  LEFT JOIN {schema}.body AS body ON body.task_no = t.task_no

-- put_workflows: names and policies of workflows, for submissions by SQL.
-- Params: rows (JSON array of objects: name, policy, complete_within).
INSERT INTO {schema}.workflow AS known (name, policy, complete_within)
SELECT name, policy, complete_within
  FROM json_to_recordset(%(rows)s::json) AS given (name text, policy text, complete_within double precision)
 ORDER BY name
    ON CONFLICT (name) DO UPDATE SET policy = excluded.policy, complete_within = excluded.complete_within
 WHERE (known.policy, known.complete_within) IS DISTINCT FROM (excluded.policy, excluded.complete_within)

-- put_app_workflows: names and policies of an App's workflows, for submissions by SQL.
-- Params: app, rows (JSON array of objects: name, policy, complete_within).
INSERT INTO {schema}.app_workflow AS known (name, app, policy, complete_within)
SELECT name, %(app)s::text, policy, complete_within
  FROM json_to_recordset(%(rows)s::json) AS given (name text, policy text, complete_within double precision)
 ORDER BY name
    ON CONFLICT (name, app) DO UPDATE SET policy = excluded.policy, complete_within = excluded.complete_within
 WHERE (known.policy, known.complete_within) IS DISTINCT FROM (excluded.policy, excluded.complete_within)

-- copy_app_workflows: give an App the workflows of another one, except names it has already.
-- Params: app (the other one), new.
INSERT INTO {schema}.app_workflow (name, app, policy, complete_within)
SELECT name, %(new)s::text, policy, complete_within FROM {schema}.app_workflow WHERE app = %(app)s
    ON CONFLICT (name, app) DO NOTHING

-- delete_app_workflows: the workflows of an App that has another name now.
DELETE FROM {schema}.app_workflow WHERE app = %(app)s

-- insert_body_of_run: the arguments of a task's next run. What the task was submitted with still answers for its id.
-- Params: task_no, earlier (number of the run before), arguments.
INSERT INTO {schema}.body (task_no, arguments, asked)
SELECT %(task_no)s, %(arguments)s, coalesce(asked, arguments) FROM {schema}.body WHERE task_no = %(earlier)s

-- select_id: whether a task has this id.
SELECT EXISTS (SELECT 1 FROM {schema}.task WHERE task_id = %(task_id)s)
