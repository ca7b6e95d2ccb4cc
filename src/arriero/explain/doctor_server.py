"""Diagnoses a PostgreSQL server that holds a store: facts in, findings with their remedies out."""

import re
from collections.abc import Iterable, Mapping, Sequence

from ..core.alerts import describe_shared_row
from ..core.tokens import TokenVerdict, find_state, list_left_behind
from ..errors import UnreadableRow
from ..inspection.facts import (
    BLOCKING_SECONDS_MAX,
    OPEN_SECONDS_MAX,
    OpenTransaction,
    ReplicationSlot,
    ServerFacts,
    Standby,
    TableFacts,
)
from ..model import Instant, later, seconds_between
from ..model.processes import LeaderSurvey
from ..model.tokens import TokenRow
from ..store.contract import Survey
from ..system.loopback import is_loopback
from ..text.escaping import one_line, shell_argument, shell_word
from ..text.format import format_bytes, format_count, format_count_with_verb, format_duration, format_instant_and_age
from .doctor import NAMES_SHOWN_MAX, Finding
from .liveness import LiveProcesses


def diagnose_leader(leader: LeaderSurvey | None, refused: tuple[int, Instant | None], survey: Survey) -> list[Finding]:
    """Diagnose the election of the Supervisors.

    Args:
        leader: who leads; None: nobody.
        refused: how many writes were refused because their term was past, and when the last one was.
    """
    return [*_describe_leader(leader, survey), *_describe_refused_terms(*refused, survey.now)]


def _describe_leader(leader: LeaderSurvey | None, survey: Survey) -> list[Finding]:
    if leader is not None:
        since = "" if leader.since is None else f" since {format_instant_and_age(leader.since, leader.now)}"
        ahead = (leader.until - leader.now) / 1_000_000
        says = (
            f"{one_line(leader.process) or 'a process that has ended'} leads the Supervisors under term {leader.term}{since};"
            f" its lease lapses in {ahead:.1f} s unless it renews"
        )
        return [Finding("fine", "leader", says)]
    if not LiveProcesses(survey.processes, survey.now).list_with_role("supervisor"):
        return []  # the finding about roles says so
    return [Finding("information", "leader", "no Supervisor leads just now; the next one takes over within seconds")]


def _describe_refused_terms(count: int, last_at: Instant | None, now: Instant) -> list[Finding]:
    if last_at is None:
        return []
    says = (
        f"{format_count(count, 'write')} of Supervisors that no longer led {'was' if count == 1 else 'were'} refused"
        f" and changed nothing, the last at {format_instant_and_age(last_at, now)}"
    )
    remedy = "if the number grows, see in the logs which process freezes, or is cut off, for longer than leader_seconds"
    return [Finding("information", "leader", says, remedy)]


def diagnose_unreadable_rows(errors: Sequence[UnreadableRow]) -> list[Finding]:
    """Diagnose rows that belong to no task and cannot be read. ``errors``: each row once."""
    found: list[Finding] = []
    for error in errors[:NAMES_SHOWN_MAX]:
        row = describe_shared_row(error.row)
        waits = f"; {row.waits}" if row.waits else ""
        found.append(Finding("care", "unreadable", f"{row.what} cannot be read: {error.what}{waits}", row.remedy))
    if len(errors) > NAMES_SHOWN_MAX:
        says = f"{format_count(len(errors) - NAMES_SHOWN_MAX, 'more row')} of no task cannot be read"
        found.append(Finding("care", "unreadable", says, "correct those that are named here, and look again"))
    return found


EXPIRES_SOON_SECONDS = 7 * 86_400.0  # time enough to give the holder another one


def diagnose_tokens(
    rows: Sequence[TokenRow], now: Instant, *, serves: bool, names: Mapping[str, str] | None = None
) -> list[Finding]:
    """Diagnose the tokens of a store.

    Args:
        serves: the settings here name the role http.
        names: of renamed Apps the new names, by the old ones.
    """
    return [*_diagnose_tokens_left_behind(rows, names or {}, now), *_diagnose_validity(rows, now, serves=serves)]


def _diagnose_tokens_left_behind(rows: Sequence[TokenRow], names: Mapping[str, str], now: Instant) -> list[Finding]:
    left = list_left_behind(rows, names, now)
    found: list[Finding] = []
    for row in left[:NAMES_SHOWN_MAX]:
        renamed = ", ".join(f"App {app!r}, which is now App {names[app]!r}" for app in row.apps if app in names)
        says = f"token {row.token_id} of {one_line(row.name)} is restricted to {renamed}: it reaches no task of the new name"
        apps = tuple(dict.fromkeys(names.get(app, app) for app in row.apps))
        found.append(Finding("care", "tokens", says, format_replacement(row, apps, now)))
    if more := len(left) - len(found):
        says = f"{format_count(more, 'more token')} restricted to an App that was renamed"
        found.append(Finding("care", "tokens", says, "arriero token list"))
    return found


def format_replacement(row: TokenRow, apps: Iterable[str], now: Instant) -> str:
    """Format the commands that replace a token by one that is alike and restricted to other Apps."""
    words = [f"--scope {shell_word(scope)}" for scope in row.scopes]
    words += [f"--app-name {shell_word(app)}" for app in apps]
    words += [f"--workflow {shell_word(workflow)}" for workflow in row.workflows]
    if row.open_tasks_max is not None:
        words.append(f"--open-tasks-max {row.open_tasks_max}")
    if row.expires_at is not None:
        words.append(f"--expires-in {max(round(seconds_between(now, row.expires_at)), 1)}s")
    create = f"arriero token create {' '.join(words)} {shell_argument(row.name)}"
    return f"{create}; give it to its holder, then: arriero token revoke {row.token_id} --reason TEXT"


def _diagnose_validity(rows: Sequence[TokenRow], now: Instant, *, serves: bool) -> list[Finding]:
    valid = [row for row in rows if find_state(row, now) is TokenVerdict.VALID]
    if not valid:
        if not serves and not rows:
            return []
        says = "there is no valid token, so nobody can use the HTTP API"
        return [Finding("information", "tokens", says, "make one: arriero token create NAME --scope SCOPE")]
    until = later(now, EXPIRES_SOON_SECONDS)
    ending = [(row.expires_at, row) for row in valid if row.expires_at is not None and row.expires_at <= until]
    if not ending:
        return [Finding("fine", "tokens", f"{format_count(len(valid), 'valid token')} of the HTTP API")]
    ending.sort(key=lambda one: one[0])
    named = ", ".join(f"{one_line(row.name)} ({row.token_id})" for _, row in ending[:NAMES_SHOWN_MAX])
    says = (
        f"{format_count(len(ending), 'token')} will expire within a week, the first at"
        f" {format_instant_and_age(ending[0][0], now)}: {named}"
    )
    remedy = "make another one of the same name, give it to its holder, then revoke the old one"
    return [Finding("care", "tokens", says, remedy)]


def diagnose_address(host: str, *, tls: bool, behind_proxy: str, unix_socket: str) -> list[Finding]:
    """Diagnose where the settings here let the HTTP API listen."""
    if unix_socket or is_loopback(host):
        return []
    if not tls and not behind_proxy:
        says = f"the HTTP API is to listen on {one_line(host)}, which is refused without TLS or a proxy"
        return [Finding("care", "http", says, "set http.host to 127.0.0.1, or http.tls_cert and http.tls_key")]
    how = "with TLS" if tls else f"without TLS, and believes the header {behind_proxy} of its proxy"
    remedy = "" if tls else "see that only the proxy can connect there"
    return [Finding("information", "http", f"the HTTP API listens on {one_line(host)}, open to others, {how}", remedy)]


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


def diagnose_server(server: ServerFacts, *, arriero: str, python: str, driver: str) -> list[Finding]:
    """Diagnose the server without looking at any task. The other arguments are versions of what runs here."""
    return [
        Finding(
            "fine", "versions", f"arriero {arriero}, Python {python}, PostgreSQL {server.version}, psycopg {driver}"
        ),
        check_schema(server.schema, server.schema_known),
        *_check_durability(server),
        *_check_standbys(server),
        _check_connections(server),
        _check_clock(server),
        _check_listening(server),
        *_check_tables(server),
        *_check_blockers(server),
    ]


def check_schema(number: int, known: int) -> Finding:
    """Compare a schema that an operator must migrate with the one this release needs."""
    if number < known:
        says = f"the schema is number {number}, this release of arriero needs number {known}"
        remedy = "arriero migrate; tasks and processes were not looked at before that"
        return Finding("care", "schema", says, remedy)
    if number > known:
        says = f"the schema is number {number}, this release of arriero knows {known} and works with it"
        return Finding("information", "schema", says, "replace what still runs this release by the newer one")
    return Finding("fine", "schema", f"the schema is number {number}, this release's")


def _check_durability(server: ServerFacts) -> list[Finding]:
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


def _check_standbys(server: ServerFacts) -> list[Finding]:
    wanted = count_required_standbys(server.standby_names)
    if not wanted:
        if not server.standbys:
            return [Finding("information", "standby", "there is no standby: what this server's disk loses is lost")]
        names = ", ".join(standby.name for standby in server.standbys[:NAMES_SHOWN_MAX])
        says = f"commits wait for no standby ({names}): what was accepted last is lost when it takes over"
        remedy = "name standbys in synchronous_standby_names, if nothing may be lost"
        return [Finding("information", "standby", says, remedy)]
    if any(not standby.sync for standby in server.standbys):
        says = f"user {server.user} may not see whether the standbys that commits wait for are connected"
        return [Finding("information", "standby", says, f"GRANT pg_monitor TO {server.user}")]
    waited_for = [standby.name for standby in server.standbys if standby.sync in ("sync", "quorum")]
    if len(waited_for) < wanted:
        says = (
            f"commits wait for {format_count(wanted, 'standby')} of {server.standby_names},"
            f" and {format_count_with_verb(len(waited_for), 'standby')} connected: every commit hangs"
        )
        remedy = "bring the standby back, or take it out of synchronous_standby_names and reload the server"
        return [Finding("care", "standby", says, remedy)]
    return [Finding("fine", "standby", f"commits wait for {wanted} of {', '.join(waited_for)}")]


def count_required_standbys(names: str) -> int:
    """Count the standbys that each commit waits for, by ``synchronous_standby_names``."""
    if not names.strip():
        return 0
    counted = _STANDBYS.match(names)
    return int(counted[1]) if counted else 1


def _check_connections(server: ServerFacts) -> Finding:
    taken, most = server.connections, server.connections_max
    says = f"{taken:,} of {most:,} connections are taken"
    if taken >= most * CONNECTIONS_SHARE_MAX or most - taken < CONNECTIONS_FREE_MIN:
        remedy = "raise max_connections, or put a pooler before the server: without any left, processes are blocked"
        return Finding("care", "connections", says, remedy)
    return Finding("fine", "connections", says)


def _check_clock(server: ServerFacts) -> Finding:
    ahead = server.clock_ahead
    if abs(ahead) <= CLOCK_SECONDS_MAX + server.round_trip:
        return Finding("fine", "clock", "this machine's clock agrees with the server's")
    way = "ahead of" if ahead > 0 else "behind"
    says = (
        f"the server's clock is {format_duration(abs(ahead))} {way} this machine's; only the server's counts for tasks"
    )
    return Finding("information", "clock", says, "set both by one time service, so that logs can be compared")


def _check_listening(server: ServerFacts) -> Finding:
    match server.listening:
        case "heard":
            return Finding("fine", "listen", "wake-ups from other processes are heard (LISTEN)")
        case "off":
            return Finding("fine", "listen", "wake-ups are off (listen=off): processes poll")
        case "silent":
            says = "LISTEN is accepted, but no notification arrives, as behind a pooler: processes poll"
        case "refused":
            says = f"wake-ups cannot be listened for, processes poll: {server.listening_error}"
    remedy = "name the server itself in the URL, listen_url=postgresql://..., or say listen=off"
    return Finding("information", "listen", says, remedy)


# --- tables
def _check_tables(server: ServerFacts) -> list[Finding]:
    found: list[Finding] = []
    if not server.autovacuum:
        says = "the server does not vacuum by itself (autovacuum or track_counts is off): tables grow without end"
        found.append(Finding("care", "vacuum", says, "turn both on in postgresql.conf"))
    for table in server.tables:
        if not table.is_automatic:
            says = f"autovacuum is off for table {table.name}: it grows without end"
            remedy = f"ALTER TABLE {table.name} RESET (autovacuum_enabled)"
            found.append(Finding("care", "vacuum", says, remedy))
        found += _check_growth(table)
    return found or [Finding("fine", "vacuum", "the tables are vacuumed as they need")]


def _check_growth(table: TableFacts) -> list[Finding]:
    rows = f"table {table.name} holds {table.dead:,} dead rows beside {table.live:,} live ones"
    if table.dead >= DEAD_ROWS_MIN and table.dead > DEAD_SHARE_MAX * (table.live + table.dead):
        remedy = f"end what keeps old rows visible, if anything is named here; then VACUUM (ANALYZE) {table.name}"
        return [Finding("care", "vacuum", f"{rows}: whatever looks for tasks reads past them", remedy)]
    if not table.is_vacuumed and table.live + table.dead >= ROWS_UNVACUUMED_MAX:
        says = f"table {table.name} holds {format_count(table.live, 'row')} and was never vacuumed"
        return [Finding("information", "vacuum", says, f"VACUUM (ANALYZE) {table.name}")]
    return []


# --- what holds everything up
def _check_blockers(server: ServerFacts) -> list[Finding]:
    found = [_describe_open_transaction(held, server.now) for held in server.transactions if _is_long(held, server.now)]
    hidden = [held for held in server.transactions if held.since is None and _is_holding(held.held)]
    found += [_describe_open_transaction(held, server.now) for held in hidden]
    found += [finding for slot in server.slots for finding in _check_slot(slot)]
    found += [_describe_standby(standby) for standby in server.standbys if _is_holding(standby.held)]
    if not found:
        says = f"no transaction has been open for longer than {format_duration(OPEN_SECONDS_MAX)}"
        found = [Finding("fine", "transactions", says)]
    if not server.sees_all:
        says = f"user {server.user} may not see what other users' sessions do: only their names are known"
        found.append(Finding("information", "transactions", says, f"GRANT pg_monitor TO {server.user}"))
    return found[: 3 * NAMES_SHOWN_MAX]


def _is_long(held: OpenTransaction, now: Instant) -> bool:
    limit = BLOCKING_SECONDS_MAX if held.blocks else OPEN_SECONDS_MAX
    return held.since is not None and seconds_between(held.since, now) > limit


def _is_holding(held: int | None) -> bool:
    return held is not None and held > HELD_ROWS_MIN


def _describe_open_transaction(held: OpenTransaction, now: Instant) -> Finding:
    since = "" if held.since is None else f" since {format_instant_and_age(held.since, now)}"
    if held.pid is None:
        who = f"transaction {held.name!r} of user {held.user}, prepared for two-phase commit and never ended,"
        remedy = f"COMMIT PREPARED or ROLLBACK PREPARED {_quote_literal(held.name)}, as its owner would have"
    else:
        place = f" from {held.client}" if held.client else ""
        who = f"session {held.pid} of user {held.user}, application {held.application or 'without a name'}{place},"
        remedy = (
            "find in that program the transaction that it leaves open, and end it there;"
            f" or end the session: SELECT pg_terminate_backend({held.pid})"
        )
    says = f"{who} has been open{since}" if held.pid is None else f"{who} has a transaction open{since} ({held.state})"
    if held.locks:
        says += f"; it locks {_join_some(held.locks)}"
    if held.blocks:
        says += f"; {format_count(held.blocks, 'session')} {'waits' if held.blocks == 1 else 'wait'} for it"
    if held.held is not None:
        says += f"; nothing that changed since can be vacuumed ({format_count(held.held, 'transaction')})"
    return Finding("care", "transactions", says, remedy)


def _join_some(names: Sequence[str]) -> str:
    more = len(names) - NAMES_SHOWN_MAX
    return ", ".join(names[:NAMES_SHOWN_MAX]) + (f" and {more} more" if more > 0 else "")


def _quote_literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _check_slot(slot: ReplicationSlot) -> list[Finding]:
    found: list[Finding] = []
    unread = "" if slot.is_active else ", which nobody reads,"
    drop = f"bring its reader back, or drop it: SELECT pg_drop_replication_slot({_quote_literal(slot.name)})"
    if _is_holding(slot.held):
        says = (
            f"replication slot {slot.name}{unread} keeps rows visible: nothing that changed since can be vacuumed"
            f" ({format_count(slot.held or 0, 'transaction')})"
        )
        found.append(
            Finding("care", "transactions", says, "end the long query on its standby" if slot.is_active else drop)
        )
    if not slot.is_active and slot.retained > RETAINED_BYTES_MAX:
        says = f"replication slot {slot.name}{unread} keeps {format_bytes(slot.retained)} of the log: the disk fills up"
        found.append(Finding("care", "transactions", says, drop))
    return found


def _describe_standby(standby: Standby) -> Finding:
    says = (
        f"a query on standby {standby.name} keeps rows visible (hot_standby_feedback): nothing that changed since can be"
        f" vacuumed ({format_count(standby.held or 0, 'transaction')})"
    )
    return Finding("care", "transactions", says, "end the long query there")
