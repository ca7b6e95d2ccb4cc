"""Facts about a PostgreSQL server."""

from typing import Literal

import msgspec

from ..model import Instant

OPEN_SECONDS_MAX = 60.0  # a transaction of an application takes far less
BLOCKING_SECONDS_MAX = 5.0  # of one for whose locks other sessions wait: those are held up now


Listening = Literal["off", "heard", "silent", "refused"]


class TableFacts(msgspec.Struct, frozen=True):
    """A table of arriero's. ``is_vacuumed``: ever; ``is_automatic``: it is vacuumed as it needs."""

    name: str
    live: int
    dead: int
    is_vacuumed: bool
    is_automatic: bool


class OpenTransaction(msgspec.Struct, frozen=True, kw_only=True):
    """A transaction that has been open for long.

    Args:
        pid: of the server's process; None: it is prepared for two-phase commit, and nobody's.
        name: of a prepared one.
        since: when it began; None: this user may not see it.
        state: as pg_stat_activity tells it.
        locks: on arriero's tables, "task (RowExclusiveLock)".
        blocks: how many sessions wait for it.
        held: how many transactions began since the oldest one that it may still see; None: it holds back none.
    """

    pid: int | None
    name: str = ""
    user: str
    application: str
    client: str = ""
    since: Instant | None
    state: str
    locks: tuple[str, ...] = ()
    blocks: int = 0
    held: int | None = None


class ReplicationSlot(msgspec.Struct, frozen=True, kw_only=True):
    """A replication slot. ``held``: as of an OpenTransaction; ``retained``: bytes of log kept for it."""

    name: str
    is_active: bool
    held: int | None
    retained: int


class Standby(msgspec.Struct, frozen=True, kw_only=True):
    """A standby that is connected. ``sync``: as pg_stat_replication tells it, empty when this user may not see it."""

    name: str
    sync: str
    held: int | None


class ServerFacts(msgspec.Struct, frozen=True, kw_only=True):
    """Facts about a server that one user may see.

    Args:
        user: who looks; ``sees_all``: whether it may see what others do.
        schema, schema_known: numbers of the last migration: on the server, and of this release.
        synchronous_commit: as this user gets it, before arriero raises it for its own transactions.
        standby_names: of those that commits wait for, as the server's setting has it.
        connections, connections_max: taken, and for users that are no superuser.
        clock_ahead: seconds by which the server's clock is ahead of this machine's; ``round_trip``: how exactly.
        listening: what became of a wake-up that was told; ``listening_error``: why it could not be.
        autovacuum: whether the server vacuums and counts by itself.
    """

    now: Instant
    user: str
    sees_all: bool
    version: str
    schema: int
    schema_known: int
    synchronous_commit: str
    fsync: bool
    full_page_writes: bool
    standby_names: str
    standbys: tuple[Standby, ...]
    connections: int
    connections_max: int
    clock_ahead: float
    round_trip: float
    listening: Listening
    listening_error: str = ""
    autovacuum: bool
    tables: tuple[TableFacts, ...]
    transactions: tuple[OpenTransaction, ...]
    slots: tuple[ReplicationSlot, ...]
