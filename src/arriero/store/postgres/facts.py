"""What can be seen of a server by the user that a store's URL names. Nothing here changes anything."""

import time
from typing import Any

import msgspec
import psycopg

from ...core.server_diagnosis import (
    OPEN_SECONDS_MAX,
    Listening,
    OpenTransaction,
    ServerFacts,
    Slot,
    Standby,
    TableFacts,
)
from ...model import Instant
from .asking import Connection, asked
from .migrating import executing, found_by, known_migrations
from .target import Target, target_of

HEARD_SECONDS_MAX = 2.0  # a wake-up that was told is heard within milliseconds
CLOCK_LOOKS = 3  # the quickest answer tells most
LIMITS = "SET LOCAL statement_timeout = '10s'"  # behind a pooler, what is set for longer is set for others

NO_WAIT = "SET LOCAL synchronous_commit = off"  # else the wake-up would wait for a standby that is not there

CLOCK = "SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint"

SETTINGS = """
SELECT current_user, pg_has_role(current_user, 'pg_read_all_stats', 'USAGE'), current_setting('server_version'),
       current_setting('synchronous_commit'), current_setting('fsync')::boolean,
       current_setting('full_page_writes')::boolean, current_setting('synchronous_standby_names'),
       (SELECT count(*) FROM pg_stat_activity
         WHERE datid IS NOT NULL AND coalesce(backend_type, 'client backend') = 'client backend'),
       current_setting('max_connections')::integer - current_setting('superuser_reserved_connections')::integer
           - coalesce(current_setting('reserved_connections', true), '0')::integer,
       current_setting('autovacuum')::boolean AND current_setting('track_counts')::boolean
"""

STANDBYS = """
SELECT coalesce(application_name, ''), coalesce(sync_state, ''), age(backend_xmin) FROM pg_stat_replication
 WHERE coalesce(state, 'streaming') IN ('streaming', 'catchup') ORDER BY 1, pid
"""

TABLES = """
SELECT n.nspname || '.' || c.relname, coalesce(s.n_live_tup, 0), coalesce(s.n_dead_tup, 0),
       coalesce(s.vacuum_count + s.autovacuum_count, 0) > 0,
       coalesce((SELECT option_value FROM pg_options_to_table(c.reloptions)
                  WHERE option_name = 'autovacuum_enabled')::boolean, true)
  FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
  LEFT JOIN pg_stat_all_tables AS s ON s.relid = c.oid
 WHERE n.nspname = %(schema)s AND c.relkind = 'r' ORDER BY 1
"""

LOCKS = """
ARRAY(SELECT c.relname || ' (' || string_agg(l.mode, ', ' ORDER BY l.mode) || ')'
        FROM pg_locks AS l JOIN pg_class AS c ON c.oid = l.relation JOIN pg_namespace AS n ON n.oid = c.relnamespace
       WHERE {held_by} AND l.granted AND c.relkind = 'r' AND n.nspname = %(schema)s
         AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
       GROUP BY c.relname ORDER BY c.relname)
"""

# Of another user's session a user without rights sees no more than that it has a transaction number, or a snapshot.
SESSIONS = f"""
SELECT a.pid, '', coalesce(a.usename, ''), coalesce(a.application_name, ''), coalesce(host(a.client_addr), ''),
       (extract(epoch FROM a.xact_start) * 1000000)::bigint, coalesce(a.state, 'state not known'),
       {LOCKS.format(held_by="l.pid = a.pid")},
       (SELECT count(DISTINCT w.pid) FROM pg_locks AS w WHERE NOT w.granted AND a.pid = ANY (pg_blocking_pids(w.pid))),
       greatest(age(a.backend_xmin), age(a.backend_xid))
  FROM pg_stat_activity AS a
 WHERE a.datname = current_database() AND a.pid <> pg_backend_pid()
   AND coalesce(a.backend_type, 'client backend') = 'client backend'
   AND (a.xact_start < clock_timestamp() - make_interval(secs => %(seconds)s)
        OR a.xact_start IS NULL AND coalesce(a.backend_xmin, a.backend_xid) IS NOT NULL)
 ORDER BY a.xact_start NULLS LAST, a.pid
"""

PREPARED = f"""
SELECT NULL, p.gid, p.owner, '', '', (extract(epoch FROM p.prepared) * 1000000)::bigint, 'prepared',
       {LOCKS.format(held_by="l.pid IS NULL AND l.virtualtransaction = o.virtualtransaction")}, 0, age(p.transaction)
  FROM pg_prepared_xacts AS p
  LEFT JOIN pg_locks AS o ON o.transactionid = p.transaction AND o.locktype = 'transactionid' AND o.pid IS NULL
 WHERE p.database = current_database() AND p.prepared < clock_timestamp() - make_interval(secs => %(seconds)s)
 ORDER BY p.prepared
"""

SLOTS = """
SELECT slot_name, active, age(xmin),
       CASE WHEN pg_is_in_recovery() THEN 0 ELSE coalesce(pg_wal_lsn_diff(pg_current_wal_lsn(), restart_lsn), 0)::bigint END
  FROM pg_replication_slots ORDER BY slot_name
"""


def server_facts(url: str) -> ServerFacts:
    """The facts of the server that holds the store at a URL.

    Raises: StoreError - it cannot be reached, or refuses; SchemaOutdated - the tables there are not ours.
    """
    target = target_of(url)
    return asked(target, lambda connection: _facts(connection, target))


def _facts(connection: Connection, target: Target) -> ServerFacts:
    listening, error = _listening(connection, target)
    with connection.transaction():
        connection.execute(LIMITS)
        facts = _of_catalog(connection, target)
    return msgspec.structs.replace(facts, listening=listening, listening_error=error)


def _of_catalog(connection: Connection, target: Target) -> ServerFacts:
    ahead, round_trip, now = _clock(connection)
    user, sees_all, version, synchronous, fsync, pages, names, taken, most, autovacuum = _one(connection, SETTINGS)
    asked_for = {"schema": target.schema, "seconds": OPEN_SECONDS_MAX}
    sessions = [*_rows(connection, SESSIONS, asked_for), *_rows(connection, PREPARED, asked_for)]
    return ServerFacts(
        now=now,
        user=user,
        sees_all=sees_all,
        version=version.split()[0],
        schema=found_by(executing(connection), target.schema).number or 0,
        schema_known=known_migrations()[-1].number,
        synchronous_commit=synchronous,
        fsync=fsync,
        full_page_writes=pages,
        standby_names=names,
        standbys=tuple(Standby(name=name, sync=sync, held=held) for name, sync, held in _rows(connection, STANDBYS)),
        connections=taken,
        connections_max=most,
        clock_ahead=ahead,
        round_trip=round_trip,
        listening="off",
        autovacuum=autovacuum,
        tables=tuple(TableFacts(*row) for row in _rows(connection, TABLES, {"schema": target.schema})),
        transactions=tuple(_transaction(row) for row in sessions),
        slots=tuple(Slot(name=n, is_active=a, held=h, retained=r) for n, a, h, r in _rows(connection, SLOTS)),
    )


def _rows(connection: Connection, query: str, parameters: dict[str, Any] | None = None) -> list[tuple[Any, ...]]:
    return connection.execute(query.encode(), parameters).fetchall()


def _one(connection: Connection, query: str) -> tuple[Any, ...]:
    (row,) = _rows(connection, query)
    return row


def _transaction(row: tuple[Any, ...]) -> OpenTransaction:
    pid, name, user, application, client, since, state, locks, blocks, held = row
    return OpenTransaction(
        pid=pid,
        name=name,
        user=user,
        application=application,
        client=client,
        since=None if since is None else Instant(since),
        state=state,
        locks=tuple(locks),
        blocks=blocks,
        held=held,
    )


def _clock(connection: Connection) -> tuple[float, float, Instant]:
    """By how many seconds the server is ahead of this machine, how long the answer took, and the server's time."""
    looks = []
    for _ in range(CLOCK_LOOKS):
        before = time.time()
        (now,) = _one(connection, CLOCK)
        after = time.time()
        looks.append((after - before, now / 1_000_000 - (before + after) / 2))
    round_trip, ahead = min(looks)
    return ahead, round_trip, Instant(now)


def _listening(connection: Connection, target: Target) -> tuple[Listening, str]:
    """Tell one wake-up to ourselves, on a channel that nobody else listens to; and why it could not be listened for."""
    if not target.listen:
        return "off", ""
    channel = f"{target.channel}_doctor"
    try:
        with psycopg.connect(target.listen_conninfo, autocommit=True, prepare_threshold=None) as ear:
            ear.execute(f"LISTEN {channel}".encode())
            with connection.transaction():
                connection.execute(NO_WAIT)
                connection.execute("SELECT pg_notify(%s, '')", (channel,))
            heard = list(ear.notifies(timeout=HEARD_SECONDS_MAX, stop_after=1))
            return ("heard", "") if heard else ("silent", "")
    except psycopg.Error as error:
        return "refused", " ".join(str(error).split())
