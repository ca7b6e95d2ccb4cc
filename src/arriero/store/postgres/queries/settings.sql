-- settings: of this transaction only, or of the connection. What was accepted must be on the disk, and on the standby that is waited for.
-- Params: lock, statement, idle (milliseconds); plans: force_custom_plan, or force_generic_plan with others: off; whole: off where rows are
-- found by an index; local (truth value).
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
       set_config('enable_hashjoin', %(others)s, %(local)s), set_config('enable_mergejoin', %(others)s, %(local)s),
       set_config('synchronous_commit',
                  CASE WHEN current_setting('synchronous_commit') IN ('off', 'local', 'remote_write') THEN 'on'
                       ELSE current_setting('synchronous_commit') END, %(local)s)
