"""Plain facts about a store: its server or file, its backlog, and the calls of its Agents."""

from typing import Literal

import msgspec

from ..model import Instant


class CountsRow(msgspec.Struct, frozen=True, kw_only=True):
    """The calls that one process made for its App within one minute of the store's clock.

    Attributes:
        process_no: 0: the sum of all minutes that are no longer kept one by one; its ``minute`` is 0.
        minute: minutes since 1970 by the store's clock.
        calls: how many ended. It only grows, so of two versions of a row the one with more calls is the newer one.
        counts: by Agent, as JSON text; see ``core.agent_metrics``.
    """

    app: str
    process_no: int
    minute: int
    calls: int
    counts: str


class AgentLoad(msgspec.Struct, frozen=True, kw_only=True):
    """Requests and attempts of one Agent of an App.

    Attributes:
        due: requests that may be taken now; ``oldest_at``: since when the oldest may.
        later: requests whose time has not come.
        running: running attempts.
    """

    app: str
    agent: str
    due: int = 0
    oldest_at: Instant | None = None
    later: int = 0
    running: int = 0


class AgentMeasurements(msgspec.Struct, frozen=True, kw_only=True):
    """All that the store knows about calls and load, as of one moment. ``loads``: by Agent and App."""

    now: Instant
    counts: tuple[CountsRow, ...]
    loads: tuple[AgentLoad, ...]


class Backlog(msgspec.Struct, frozen=True, kw_only=True):
    """Counts of what waits, as of one moment. Each count stops at ``store.contract.COUNTED_MAX``: that many, or more.

    They are read from indexes that hold only what is not finished, so ended tasks cost nothing.

    Attributes:
        running: tasks that a process drives.
        due: free tasks that may continue now; ``oldest_due_at``: since when the oldest may.
        later: free tasks that may not continue before an instant that has not come.
        in_convoy: tasks that wait for their turn.
        held: tasks that wait for an operator.
        convoys_stopped, convoys_in_gap, convoys_parked: convoys that are blocked.
        alerts: open alerts.
        statuses: status messages that nobody acknowledged; ``oldest_status_at``: since when the oldest is there.
        schedules_due: schedules that the leader should have looked at; ``oldest_schedule_at``: since when.
        leases: leases that a caller holds, with that of the Supervisors.
    """

    now: Instant
    running: int
    due: int
    oldest_due_at: Instant | None
    later: int
    in_convoy: int
    held: int
    convoys_stopped: int
    convoys_in_gap: int
    convoys_parked: int
    alerts: int
    statuses: int
    oldest_status_at: Instant | None
    schedules_due: int
    oldest_schedule_at: Instant | None
    leases: int


class FileFacts(msgspec.Struct, frozen=True, kw_only=True):
    """Facts about a store's file that are read without changing it.

    Args:
        schema, schema_known: numbers of the last migration: in the file, and of this release.
        synchronous: as arriero's own connections have it; empty when it was not asked.
        file_system: its kind, empty when the system does not say; ``mount``: where it is mounted.
        log_readers: processes that keep a read transaction open, which keeps the log from being emptied; looked for when it is large.
        was_checked: whether the file was read through and found whole; a large one is not.
        damaged: columns of rows, by name, that hold what this release cannot read; looked for in what was checked.
        readable: which of the store's files users besides its owner may read.
    """

    path: str
    schema: int
    schema_known: int
    journal_mode: str
    synchronous: str = ""
    file_system: str
    mount: str
    disk_free: int
    disk_total: int
    file_bytes: int
    log_bytes: int
    was_checked: bool
    damaged: tuple[str, ...] = ()
    readable: tuple[str, ...] = ()
    log_readers: tuple[str, ...] = ()


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
        state: as pg_stat_activity shows it.
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
    """A standby that is connected. ``sync``: as pg_stat_replication shows it, empty when this user may not see it."""

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
        connections, connections_max: taken, and for users that are not superusers.
        clock_ahead: seconds by which the server's clock is ahead of this machine's; ``payloads.round_trip``: how exactly.
        listening: what became of a wake-up that was reported; ``listening_error``: why it could not be.
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
