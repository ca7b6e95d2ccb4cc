-- read_clock: the server's clock in microseconds.
SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint

-- limit_inspection: for this transaction only: behind a pooler a longer setting would hold for others. jit: see settings.
SELECT set_config('statement_timeout', '10s', true), set_config('jit', 'off', true)

-- wait_for_no_standby: for this transaction only: else the wake-up would wait for a standby that is not there.
SET LOCAL synchronous_commit = off

-- survey_server: rights of the user, and settings and connections of the server.
SELECT current_user, pg_has_role(current_user, 'pg_read_all_stats', 'USAGE'), current_setting('server_version'),
       current_setting('synchronous_commit'), current_setting('fsync')::boolean,
       current_setting('full_page_writes')::boolean, current_setting('synchronous_standby_names'),
       (SELECT count(*) FROM pg_stat_activity
         WHERE datid IS NOT NULL AND coalesce(backend_type, 'client backend') = 'client backend'),
       current_setting('max_connections')::integer - current_setting('superuser_reserved_connections')::integer
           - coalesce(current_setting('reserved_connections', true), '0')::integer,
       current_setting('autovacuum')::boolean AND current_setting('track_counts')::boolean

-- survey_standbys: standbys, and the age of the oldest transaction that each keeps.
SELECT coalesce(application_name, ''), coalesce(sync_state, ''), age(backend_xmin) FROM pg_stat_replication
 WHERE coalesce(state, 'streaming') IN ('streaming', 'catchup') ORDER BY 1, pid

-- survey_tables: our tables: rows, dead rows, whether they were ever vacuumed and will be.
SELECT n.nspname || '.' || c.relname, coalesce(s.n_live_tup, 0), coalesce(s.n_dead_tup, 0),
       coalesce(s.vacuum_count + s.autovacuum_count, 0) > 0,
       coalesce((SELECT option_value FROM pg_options_to_table(c.reloptions)
                  WHERE option_name = 'autovacuum_enabled')::boolean, true)
  FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
  LEFT JOIN pg_stat_all_tables AS s ON s.relid = c.oid
 WHERE n.nspname = %(schema)s AND c.relkind = 'r' ORDER BY 1

-- survey_sessions: sessions of this database with an old transaction, with one that others have to wait for, or with one of which nothing more is visible.
-- Without rights a user sees of another one's session only that it has a transaction number or a snapshot.
SELECT a.pid, '', coalesce(a.usename, ''), coalesce(a.application_name, ''), coalesce(host(a.client_addr), ''),
       (extract(epoch FROM a.xact_start) * 1000000)::bigint, coalesce(a.state, 'state not known'),
ARRAY(SELECT c.relname || ' (' || string_agg(l.mode, ', ' ORDER BY l.mode) || ')'
        FROM pg_locks AS l JOIN pg_class AS c ON c.oid = l.relation JOIN pg_namespace AS n ON n.oid = c.relnamespace
       WHERE l.pid = a.pid AND l.granted AND c.relkind = 'r' AND n.nspname = %(schema)s
         AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
       GROUP BY c.relname ORDER BY c.relname)
,
       (SELECT count(DISTINCT w.pid) FROM pg_locks AS w WHERE NOT w.granted AND a.pid = ANY (pg_blocking_pids(w.pid))),
       greatest(age(a.backend_xmin), age(a.backend_xid))
  FROM pg_stat_activity AS a
 WHERE a.datname = current_database() AND a.pid <> pg_backend_pid()
   AND coalesce(a.backend_type, 'client backend') = 'client backend'
   AND (a.xact_start < clock_timestamp() - make_interval(secs => %(seconds)s)
        OR a.xact_start < clock_timestamp() - make_interval(secs => %(blocking_seconds)s)
           AND EXISTS (SELECT FROM pg_locks AS w WHERE NOT w.granted AND a.pid = ANY (pg_blocking_pids(w.pid)))
        OR a.xact_start IS NULL AND coalesce(a.backend_xmin, a.backend_xid) IS NOT NULL)
 ORDER BY a.xact_start NULLS LAST, a.pid

-- survey_prepared: old prepared transactions of this database.
SELECT NULL, p.gid, p.owner, '', '', (extract(epoch FROM p.prepared) * 1000000)::bigint, 'prepared',
ARRAY(SELECT c.relname || ' (' || string_agg(l.mode, ', ' ORDER BY l.mode) || ')'
        FROM pg_locks AS l JOIN pg_class AS c ON c.oid = l.relation JOIN pg_namespace AS n ON n.oid = c.relnamespace
       WHERE l.pid IS NULL AND l.virtualtransaction = o.virtualtransaction AND l.granted AND c.relkind = 'r' AND n.nspname = %(schema)s
         AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
       GROUP BY c.relname ORDER BY c.relname)
, 0, age(p.transaction)
  FROM pg_prepared_xacts AS p
  LEFT JOIN pg_locks AS o ON o.transactionid = p.transaction AND o.locktype = 'transactionid' AND o.pid IS NULL
 WHERE p.database = current_database() AND p.prepared < clock_timestamp() - make_interval(secs => %(seconds)s)
 ORDER BY p.prepared

-- survey_slots: replication slots, and the age and the bytes of log that each keeps.
SELECT slot_name, active, age(xmin),
       CASE WHEN pg_is_in_recovery() THEN 0 ELSE coalesce(pg_wal_lsn_diff(pg_current_wal_lsn(), restart_lsn), 0)::bigint END
  FROM pg_replication_slots ORDER BY slot_name
