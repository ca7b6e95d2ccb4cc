"""What is wrong with a PostgreSQL server that holds a store, and what to do about it. Facts in, findings out."""

import re
from collections.abc import Sequence
from typing import Literal

import msgspec

from ..model import Instant, seconds_between
from . import wording
from .diagnosis import NAMES_TOLD_MAX, Finding

OPEN_SECONDS_MAX = 60.0  # a transaction of an application takes far less
HELD_ROWS_MIN = (
    500_000  # transactions since the oldest one that must stay visible: what they left cannot be cleared away
)
RETAINED_BYTES_MAX = 10**9  # of the log that a slot keeps although nobody reads it
CLOCK_SECONDS_MAX = 2.0  # between the server's clock and this machine's, beside the time the answer took
CONNECTIONS_SHARE_MAX = 0.9
CONNECTIONS_FREE_MIN = 10  # a process that runs an App takes up to eight, one after the other
DEAD_ROWS_MIN = 100_000  # fewer are nobody's trouble, and
DEAD_SHARE_MAX = 0.5  # of all rows of a table
ROWS_UNVACUUMED_MAX = 1_000_000  # a busy table is vacuumed long before

_STANDBYS = re.compile(r"^\s*(?:(?:FIRST|ANY)\s+)?(\d+)\s*\(", re.IGNORECASE)
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


class Slot(msgspec.Struct, frozen=True, kw_only=True):
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
    """What can be seen of a server by one user.

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
    slots: tuple[Slot, ...]


def diagnose_server(server: ServerFacts, *, arriero: str, python: str, driver: str) -> list[Finding]:
    """What the server shows without any task being looked at. The other arguments are versions of what runs here."""
    return [
        Finding(
            "fine", "versions", f"arriero {arriero}, Python {python}, PostgreSQL {server.version}, psycopg {driver}"
        ),
        schema_finding(server.schema, server.schema_known),
        *_durability(server),
        *_standbys(server),
        _connections(server),
        _clock(server),
        _listening(server),
        *_tables(server),
        *_blockers(server),
    ]


def schema_finding(number: int, known: int) -> Finding:
    """How a schema that must be migrated by a person stands to this release."""
    if number < known:
        says = f"the schema is number {number}, this release of arriero needs number {known}"
        remedy = "arriero migrate; tasks and processes were not looked at before that"
        return Finding("care", "schema", says, remedy)
    if number > known:
        says = f"the schema is number {number}, this release of arriero knows {known} and works with it"
        return Finding("information", "schema", says, "replace what still runs this release by the newer one")
    return Finding("fine", "schema", f"the schema is number {number}, this release's")


def _durability(server: ServerFacts) -> list[Finding]:
    off = [
        name for name, is_on in (("fsync", server.fsync), ("full_page_writes", server.full_page_writes)) if not is_on
    ]
    if off:
        says = f"the server runs with {' and '.join(f'{name} off' for name in off)}: a crash of its machine may lose or damage everything"
        return [Finding("care", "durability", says, "turn that on in postgresql.conf, unless all of this may be lost")]
    found = [Finding("fine", "durability", "fsync and full_page_writes are on: what was accepted is on the disk")]
    if server.synchronous_commit in ("off", "local", "remote_write"):
        says = f"synchronous_commit is {server.synchronous_commit} for user {server.user}: arriero turns it on for its own transactions"
        found.append(Finding("information", "durability", says))
    return found


def _standbys(server: ServerFacts) -> list[Finding]:
    wanted = standbys_wanted(server.standby_names)
    if not wanted:
        if not server.standbys:
            return [Finding("information", "standby", "there is no standby: what this server's disk loses is lost")]
        names = ", ".join(standby.name for standby in server.standbys[:NAMES_TOLD_MAX])
        says = f"commits wait for no standby ({names}): what was accepted last is lost when it takes over"
        remedy = "name standbys in synchronous_standby_names, if nothing may be lost"
        return [Finding("information", "standby", says, remedy)]
    if any(not standby.sync for standby in server.standbys):
        says = f"user {server.user} may not see whether the standbys that commits wait for are connected"
        return [Finding("information", "standby", says, f"GRANT pg_monitor TO {server.user}")]
    waited_for = [standby.name for standby in server.standbys if standby.sync in ("sync", "quorum")]
    if len(waited_for) < wanted:
        says = (
            f"commits wait for {wording.counted(wanted, 'standby')} of {server.standby_names},"
            f" and {wording.so_many_are(len(waited_for), 'standby')} connected: every commit hangs"
        )
        remedy = "bring the standby back, or take it out of synchronous_standby_names and reload the server"
        return [Finding("care", "standby", says, remedy)]
    return [Finding("fine", "standby", f"commits wait for {wanted} of {', '.join(waited_for)}")]


def standbys_wanted(names: str) -> int:
    """How many standbys each commit waits for, by ``synchronous_standby_names``."""
    if not names.strip():
        return 0
    counted = _STANDBYS.match(names)
    return int(counted[1]) if counted else 1


def _connections(server: ServerFacts) -> Finding:
    taken, most = server.connections, server.connections_max
    says = f"{taken:,} of {most:,} connections are taken"
    if taken >= most * CONNECTIONS_SHARE_MAX or most - taken < CONNECTIONS_FREE_MIN:
        remedy = "raise max_connections, or put a pooler before the server: without any left, processes stand still"
        return Finding("care", "connections", says, remedy)
    return Finding("fine", "connections", says)


def _clock(server: ServerFacts) -> Finding:
    ahead = server.clock_ahead
    if abs(ahead) <= CLOCK_SECONDS_MAX + server.round_trip:
        return Finding("fine", "clock", "this machine's clock agrees with the server's")
    way = "ahead of" if ahead > 0 else "behind"
    says = f"the server's clock is {wording.span(abs(ahead))} {way} this machine's; only the server's counts for tasks"
    return Finding("information", "clock", says, "set both by one time service, so that logs can be compared")


def _listening(server: ServerFacts) -> Finding:
    match server.listening:
        case "heard":
            return Finding("fine", "listen", "wake-ups from other processes are heard (LISTEN)")
        case "off":
            return Finding("fine", "listen", "wake-ups are off (listen=off): processes poll")
        case "silent":
            says = "LISTEN is accepted, but what is told is not heard, as behind a pooler: processes poll"
        case "refused":
            says = f"wake-ups cannot be listened for, processes poll: {server.listening_error}"
    remedy = "name the server itself in the URL, listen_url=postgresql://..., or say listen=off"
    return Finding("information", "listen", says, remedy)


# --- tables
def _tables(server: ServerFacts) -> list[Finding]:
    found: list[Finding] = []
    if not server.autovacuum:
        says = "the server does not vacuum by itself (autovacuum or track_counts is off): tables grow without end"
        found.append(Finding("care", "vacuum", says, "turn both on in postgresql.conf"))
    for table in server.tables:
        if not table.is_automatic:
            says = f"autovacuum is off for table {table.name}: it grows without end"
            remedy = f"ALTER TABLE {table.name} RESET (autovacuum_enabled)"
            found.append(Finding("care", "vacuum", says, remedy))
        found += _grown(table)
    return found or [Finding("fine", "vacuum", "the tables are vacuumed as they need")]


def _grown(table: TableFacts) -> list[Finding]:
    rows = f"table {table.name} holds {table.dead:,} dead rows beside {table.live:,} live ones"
    if table.dead >= DEAD_ROWS_MIN and table.dead > DEAD_SHARE_MAX * (table.live + table.dead):
        remedy = f"end what keeps old rows visible, if anything is named here; then VACUUM (ANALYZE) {table.name}"
        return [Finding("care", "vacuum", f"{rows}: whatever looks for tasks reads past them", remedy)]
    if not table.is_vacuumed and table.live + table.dead >= ROWS_UNVACUUMED_MAX:
        says = f"table {table.name} holds {table.live:,} rows and was never vacuumed"
        return [Finding("information", "vacuum", says, f"VACUUM (ANALYZE) {table.name}")]
    return []


# --- what holds everything up
def _blockers(server: ServerFacts) -> list[Finding]:
    found = [_open_for_long(held, server.now) for held in server.transactions if _is_long(held, server.now)]
    hidden = [held for held in server.transactions if held.since is None and _holds(held.held)]
    found += [_open_for_long(held, server.now) for held in hidden]
    found += [finding for slot in server.slots for finding in _slot(slot)]
    found += [_standby_holding(standby) for standby in server.standbys if _holds(standby.held)]
    if not found:
        says = f"no transaction has been open for longer than {wording.span(OPEN_SECONDS_MAX)}"
        found = [Finding("fine", "transactions", says)]
    if not server.sees_all:
        says = f"user {server.user} may not see what other users' sessions do: only their names are known"
        found.append(Finding("information", "transactions", says, f"GRANT pg_monitor TO {server.user}"))
    return found[: 3 * NAMES_TOLD_MAX]


def _is_long(held: OpenTransaction, now: Instant) -> bool:
    return held.since is not None and seconds_between(held.since, now) > OPEN_SECONDS_MAX


def _holds(held: int | None) -> bool:
    return held is not None and held > HELD_ROWS_MIN


def _open_for_long(held: OpenTransaction, now: Instant) -> Finding:
    since = "" if held.since is None else f" since {wording.told(held.since, now)}"
    if held.pid is None:
        who = f"transaction {held.name!r} of user {held.user}, prepared for two-phase commit and never ended,"
        remedy = f"COMMIT PREPARED or ROLLBACK PREPARED {_literal(held.name)}, as whoever prepared it would have"
    else:
        place = f" from {held.client}" if held.client else ""
        who = f"session {held.pid} of user {held.user}, application {held.application or 'without a name'}{place},"
        remedy = (
            "find in that program the transaction that it leaves open, and end it there;"
            f" or end the session: SELECT pg_terminate_backend({held.pid})"
        )
    says = f"{who} has been open{since}" if held.pid is None else f"{who} has a transaction open{since} ({held.state})"
    if held.locks:
        says += f"; it locks {_few(held.locks)}"
    if held.blocks:
        says += f"; {wording.counted(held.blocks, 'session')} {'waits' if held.blocks == 1 else 'wait'} for it"
    if held.held is not None:
        says += f"; nothing that changed since can be vacuumed ({wording.counted(held.held, 'transaction')})"
    return Finding("care", "transactions", says, remedy)


def _few(names: Sequence[str]) -> str:
    more = len(names) - NAMES_TOLD_MAX
    return ", ".join(names[:NAMES_TOLD_MAX]) + (f" and {more} more" if more > 0 else "")


def _literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _slot(slot: Slot) -> list[Finding]:
    found: list[Finding] = []
    unread = "" if slot.is_active else ", which nobody reads,"
    drop = f"bring its reader back, or drop it: SELECT pg_drop_replication_slot({_literal(slot.name)})"
    if _holds(slot.held):
        says = (
            f"replication slot {slot.name}{unread} keeps rows visible: nothing that changed since can be vacuumed"
            f" ({wording.counted(slot.held or 0, 'transaction')})"
        )
        found.append(
            Finding("care", "transactions", says, "end the long query on its standby" if slot.is_active else drop)
        )
    if not slot.is_active and slot.retained > RETAINED_BYTES_MAX:
        says = f"replication slot {slot.name}{unread} keeps {wording.size(slot.retained)} of the log: the disk fills up"
        found.append(Finding("care", "transactions", says, drop))
    return found


def _standby_holding(standby: Standby) -> Finding:
    says = (
        f"a query on standby {standby.name} keeps rows visible (hot_standby_feedback): nothing that changed since can be"
        f" vacuumed ({wording.counted(standby.held or 0, 'transaction')})"
    )
    return Finding("care", "transactions", says, "end the long query there")
