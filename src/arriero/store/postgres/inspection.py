"""Inspection of a server as the user that a store's URL names. Nothing here changes anything."""

import time
from typing import Any

import msgspec
import psycopg

from ...inspection.facts import (
    BLOCKING_SECONDS_MAX,
    OPEN_SECONDS_MAX,
    Listening,
    OpenTransaction,
    ReplicationSlot,
    ServerFacts,
    Standby,
    TableFacts,
)
from ...model import Instant
from ..columns import load_statements
from .migrating import Connection, ask_once, find_schema, known_migrations, make_execute
from .target import Target, target_of

HEARD_SECONDS_MAX = 2.0  # a wake-up that was reported is heard within milliseconds
CLOCK_LOOKS = 3  # the quickest answer says most


def server_facts(url: str) -> ServerFacts:
    """The facts of the server that holds the store at a URL.

    Raises: StoreError - it cannot be reached, or refuses; SchemaOutdated - the tables there are not ours.
    """
    target = target_of(url)
    return ask_once(target, lambda connection: _facts(connection, target))


def _facts(connection: Connection, target: Target) -> ServerFacts:
    listening, error = _test_listening(connection, target)
    with connection.transaction():
        _execute(connection, "limit_inspection")
        facts = _of_catalog(connection, target)
    return msgspec.structs.replace(facts, listening=listening, listening_error=error)


def _of_catalog(connection: Connection, target: Target) -> ServerFacts:
    ahead, round_trip, now = _clock(connection)
    user, sees_all, version, synchronous, fsync, pages, names, taken, most, autovacuum = _one(
        connection, "survey_server"
    )
    asked_for = {"schema": target.schema, "seconds": OPEN_SECONDS_MAX, "blocking_seconds": BLOCKING_SECONDS_MAX}
    sessions = [*_rows(connection, "survey_sessions", asked_for), *_rows(connection, "survey_prepared", asked_for)]
    return ServerFacts(
        now=now,
        user=user,
        sees_all=sees_all,
        version=version.split()[0],
        schema=find_schema(make_execute(connection), target.schema).number or 0,
        schema_known=known_migrations()[-1].number,
        synchronous_commit=synchronous,
        fsync=fsync,
        full_page_writes=pages,
        standby_names=names,
        standbys=tuple(
            Standby(name=name, sync=sync, held=held) for name, sync, held in _rows(connection, "survey_standbys")
        ),
        connections=taken,
        connections_max=most,
        clock_ahead=ahead,
        round_trip=round_trip,
        listening="off",
        autovacuum=autovacuum,
        tables=tuple(TableFacts(*row) for row in _rows(connection, "survey_tables", {"schema": target.schema})),
        transactions=tuple(_transaction(row) for row in sessions),
        slots=tuple(
            ReplicationSlot(name=n, is_active=a, held=h, retained=r) for n, a, h, r in _rows(connection, "survey_slots")
        ),
    )


def _execute(connection: Connection, name: str, parameters: dict[str, Any] | None = None) -> psycopg.Cursor[Any]:
    return connection.execute(load_statements(__package__)[name].encode(), parameters)


def _rows(connection: Connection, name: str, parameters: dict[str, Any] | None = None) -> list[tuple[Any, ...]]:
    return _execute(connection, name, parameters).fetchall()


def _one(connection: Connection, name: str) -> tuple[Any, ...]:
    (row,) = _rows(connection, name)
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
    """Compare the clocks: seconds that the server is ahead of this machine, duration of the answer, the server's time."""
    looks = []
    for _ in range(CLOCK_LOOKS):
        before = time.time()
        (now,) = _one(connection, "read_clock")
        after = time.time()
        looks.append((after - before, now / 1_000_000 - (before + after) / 2))
    round_trip, ahead = min(looks)
    return ahead, round_trip, Instant(now)


def _test_listening(connection: Connection, target: Target) -> tuple[Listening, str]:
    """Deliver one wake-up to ourselves, on a channel that nobody else listens to; and why it could not be listened for."""
    if not target.listen:
        return "off", ""
    channel = f"{target.channel}_doctor"
    try:
        with psycopg.connect(target.listen_conninfo, autocommit=True, prepare_threshold=None) as ear:
            ear.execute(f"LISTEN {channel}".encode())
            with connection.transaction():
                _execute(connection, "wait_for_no_standby")
                connection.execute("SELECT pg_notify(%s, '')", (channel,))
            heard = list(ear.notifies(timeout=HEARD_SECONDS_MAX, stop_after=1))
            return ("heard", "") if heard else ("silent", "")
    except psycopg.Error as error:
        return "refused", " ".join(str(error).split())
