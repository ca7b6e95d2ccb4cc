-- settings: settings of a transaction or a connection. An accepted commit must be on the disk, and on the standby if one is awaited.
-- Params: lock, statement, idle (milliseconds); plans: force_custom_plan, or force_generic_plan with others: off; whole: off
-- where an index finds every row; local (true: of this transaction only).
SELECT set_config('lock_timeout', %(lock)s, %(local)s), set_config('statement_timeout', %(statement)s, %(local)s),
       set_config('idle_in_transaction_session_timeout', %(idle)s, %(local)s),
       -- functions and operators of nobody else
       set_config('search_path', 'pg_catalog, pg_temp', %(local)s),
       -- a client whose machine died must not keep its locks for hours
       set_config('tcp_keepalives_idle', '5', %(local)s), set_config('tcp_keepalives_interval', '2', %(local)s),
       set_config('tcp_keepalives_count', '3', %(local)s), set_config('tcp_user_timeout', '10000', %(local)s),
       -- a commit whose wait for the standby was cut short is told of by a warning only
       set_config('client_min_messages', 'warning', %(local)s),
       -- a plan made while a table was small must not be kept, unless it is by index and cannot be another
       set_config('plan_cache_mode', %(plans)s, %(local)s), set_config('enable_seqscan', %(whole)s, %(local)s),
       -- it reads dead entries of an index again and again: only a plain scan marks them, so that the next one passes them over
       set_config('enable_bitmapscan', %(whole)s, %(local)s),
       -- A scan that is switched off costs 1e10, and a plan that has no other way is compiled at each execution: 0.5 s for a
       -- statement of 1 ms. A table that grew since its last statistics has the same effect. Compiling gains nothing here.
       set_config('jit', 'off', %(local)s),
       set_config('enable_hashjoin', %(others)s, %(local)s), set_config('enable_mergejoin', %(others)s, %(local)s),
       set_config('synchronous_commit',
                  CASE WHEN current_setting('synchronous_commit') IN ('off', 'local', 'remote_write') THEN 'on'
                       ELSE current_setting('synchronous_commit') END, %(local)s)

-- select_now: the store's clock.
-- Params: given (the clock of a test, else null).
SELECT {now}

-- mend_clock: if the server's clock went back behind the last renewal, the store's clock goes on from there.
WITH behind AS (
    SELECT (SELECT max(renewed_at) FROM {schema}.process) - (extract(epoch FROM clock_timestamp()) * 1000000)::bigint AS by
)
UPDATE {schema}.meta SET value = behind.by::text
  FROM behind
 WHERE name = 'clock_offset' AND behind.by > value::bigint

-- select_last_renewal: when any process renewed last, and until when nobody may free tasks.
SELECT (SELECT max(renewed_at) FROM {schema}.process),
       (SELECT value::bigint FROM {schema}.meta WHERE name = 'nobody_frees_until')

-- select_meta: one setting of the store.
SELECT value FROM {schema}.meta WHERE name = %(name)s

-- put_meta: keep one setting of the store.
INSERT INTO {schema}.meta (name, value) VALUES (%(name)s, %(value)s)
    ON CONFLICT (name) DO UPDATE SET value = excluded.value

-- select_store_head: the last link of the store's own history, locked until the transaction ends.
SELECT link, head FROM {schema}.store_head FOR NO KEY UPDATE

-- put_store_head: the last link of the store's own history.
UPDATE {schema}.store_head SET link = %(link)s, head = %(head)s

-- number_from: the first number of new tasks and processes.
SELECT setval('{schema}.task_number', greatest(nextval('{schema}.task_number'), %(first)s), false),
       setval(pg_get_serial_sequence('{schema}.process', 'process_no'),
              greatest(nextval(pg_get_serial_sequence('{schema}.process', 'process_no')), %(first)s), false)

-- tell: wake the listeners of a channel.
-- Params: channel, name (the sender's).
SELECT pg_notify(%(channel)s, %(name)s)

-- lock_epoch: the number of the store's epoch, locked until the transaction ends.
SELECT value::integer FROM {schema}.meta WHERE name = 'epoch' FOR NO KEY UPDATE

-- close_epoch: nobody who has written so far can write again. It waits for batches under way.
WITH closed AS (UPDATE {schema}.writer SET epoch = NULL WHERE epoch IS NOT NULL)
UPDATE {schema}.process SET retired = true WHERE NOT retired

-- begin_batch: number this batch in its process's row. Zero rows: the epoch of the process is over.
-- Params: given (the clock of a test, else null).
-- Rows: the store's clock.
UPDATE {schema}.writer SET batch_no = %(batch_no)s WHERE process_no = %(process_no)s AND epoch = %(epoch)s
RETURNING {now}

-- select_batch: the number of the last batch that a process committed. It waits for an undecided one.
SELECT batch_no FROM {schema}.writer WHERE process_no = %(process_no)s FOR NO KEY UPDATE

-- confirm_batch: a write: its commit also confirms all earlier ones.
UPDATE {schema}.writer SET batch_no = batch_no WHERE process_no = %(process_no)s

-- confirm: a write by a process without a row of its own: its commit also confirms all earlier ones.
UPDATE {schema}.store_head SET link = link

-- find_schema: the schema and its tables. The catalog may be read without rights on the schema.
-- Rows: one: whether the schema exists; whether it holds any table; whether one of them is our table of migrations, which
-- has these three columns.
SELECT n.oid IS NOT NULL, EXISTS (SELECT FROM pg_catalog.pg_class WHERE relnamespace = n.oid),
       (SELECT count(*) = 3 FROM pg_catalog.pg_class AS c JOIN pg_catalog.pg_attribute AS a ON a.attrelid = c.oid
         WHERE c.relnamespace = n.oid AND c.relname = 'migration' AND c.relkind = 'r' AND NOT a.attisdropped
           AND a.attname IN ('number', 'name', 'applied_at'))
  FROM (VALUES (1)) AS one LEFT JOIN pg_catalog.pg_namespace AS n ON n.nspname = %(schema)s

-- select_secret: one secret of the store, in hexadecimal. No row: nobody has needed it yet.
SELECT value FROM {schema}.secret WHERE name = %(name)s

-- add_secret: keep a secret, unless one is kept under its name.
INSERT INTO {schema}.secret (name, value) VALUES (%(name)s, %(value)s) ON CONFLICT (name) DO NOTHING

-- delete_secrets: remove all secrets but that of callbacks: the next ones who need one make another.
DELETE FROM {schema}.secret WHERE name <> 'callback'
