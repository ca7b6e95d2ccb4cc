"""Removal of a named task, convoy or ledger: the reasons why it must stay, and the events that remain of it.

A task goes with its whole history. A convoy goes with its key, its value, its own history and all its tasks; a ledger with its
name, its entries set aside and all its tasks. The store's own history is one chain, so of a row in it that names a ledger the
actor and the events are replaced by ``ERASED``, the hash stays, and a later event says which rows those are.
"""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Literal

import msgspec

from ..events.store import ConvoysPurged, LedgerPurged, TasksPurged
from ..model import TASK_OPEN, ConvoyRow, Instant, LedgerRow, LedgerState, TaskRow, TaskState, Turn, later
from ..model.agents import BreakerRow, BreakerState
from ..model.leases import LeaseRow
from ..model.processes import ProcessAbout, ProcessRow
from .breaker import REMEMBERED_SECONDS
from .lease import SUPERVISORS

if TYPE_CHECKING:  # only who purges a child has one
    from .parents import ParentStep

# A process that froze for less finds its row; one that wakes up later is refused, because its number was given.
KEPT_SECONDS = 86_400.0
TERM_FLOOR, FENCE_FLOOR = "lease_floor", "breaker_floor"  # names of settings of the store

_read_about = msgspec.json.Decoder(ProcessAbout).decode
Code = tuple[object, ...]


def read_code(about: str) -> Code:
    """Read which code a process ran, as far as the start of another App's process is judged by it (``core.apps``)."""
    try:
        said = _read_about(about)
    except msgspec.MsgspecError:
        return ("unreadable",)  # it names no App
    return (said.app, frozenset(said.workflows), frozenset(said.steps))


def find_newest(known: Iterable[tuple[str, int]]) -> dict[Code, int]:
    """Find the newest process start with each code. ``known``: what processes said of themselves, and their numbers."""
    newest: dict[Code, int] = {}
    for about, process_no in known:
        code = read_code(about)
        newest[code] = max(newest.get(code, 0), process_no)
    return newest


def list_obsolete_processes(rows: Iterable[ProcessRow], newest: Mapping[Code, int], before: Instant) -> list[int]:
    """List the numbers of process starts whose rows are obsolete.

    Args:
        rows: that no task, step, lease or count names.
        newest: of each code; its row stays, because the starts of other Apps are judged by it.
        before: the lease had lapsed by then.
    """
    return [
        row.process_no
        for row in rows
        if row.retired and row.lease_until <= before and newest.get(read_code(row.about), 0) > row.process_no
    ]


def is_obsolete_lease(row: LeaseRow, before: Instant) -> bool:
    """Returns True if the lease of a mutex was not held since ``before``."""
    return row.name != SUPERVISORS and row.until <= before and row.since <= before


def is_obsolete_breaker(row: BreakerRow, before: Instant, now: Instant) -> bool:
    """Returns True if a breaker has been closed since ``before``, and no attempt is given back because of its last outage."""
    at = min(before, later(now, -REMEMBERED_SECONDS))
    is_quiet = row.state is BreakerState.CLOSED and row.paused_at is None and row.changed_at <= at
    return is_quiet and (row.closed_at is None or row.closed_at <= at)


Named = Literal["task", "convoy", "ledger"]


def explain_kept_task(
    task: TaskRow,
    ended_before: Instant,
    *,
    unread: str | None,
    is_untold: bool,
    expected: int | None,
    parent: "ParentStep | None" = None,
) -> str | None:
    """Return why a task cannot be removed now, and what helps; None: it can be.

    Args:
        ended_before: as in ``store.contract.Purge``.
        unread: a reply queue with messages of it that nobody has acknowledged.
        is_untold: an alert of it is not delivered yet.
        expected: the next number of its convoy's sequence; None: its convoy goes with it, or it has none.
        parent: the step of another task that it is, if that is there.
    """
    said = f"task {task.task_id!r}"
    if task.ledger_no is not None:
        return f"{said} belongs to a ledger whose tasks are not all let go: submit that to its end, or discard it"
    if task.state in TASK_OPEN:
        return f"{said} is {task.state}: wait for its end, or cancel it (arriero task cancel)"
    if task.turn is Turn.OPEN:
        return f"{said} is held, and its convoy is blocked on it: resubmit it, or skip it (arriero convoy skip)"
    if task.turn is Turn.WAITING:
        return f"{said} is {task.state} and waits for its turn in its convoy"
    if task.open_count:
        return f"{said}: an attempt of a step of it may still report; wait for that"
    if task.ended_at is None or task.ended_at > ended_before:
        return f"{said} ended within purge.idempotency_keep_seconds: its id must still answer; wait, or set that lower"
    if task.sequence is not None and expected is not None and task.sequence >= expected:
        return f"{said}: its convoy counts on sequence {expected}, and {task.sequence} would be missing"
    if parent is not None and parent.state not in (TaskState.PROCESSED, TaskState.COMPENSATED):
        return f"{said} is a child of task {parent.task_id!r}, which may still undo it: wait for the end of that"
    if unread is not None:
        return f"{said}: nobody has acknowledged its messages in the reply queue {unread!r}; read them"
    if is_untold:
        return f"{said}: an alert of it is not delivered yet; let a process with its sinks run"
    return None


def explain_kept_convoy(convoy: ConvoyRow, *, keeps_some: bool) -> str | None:
    """Return why a convoy cannot be removed now, its tasks aside. ``keeps_some``: a ledger keeps a task of it."""
    if convoy.parked_at is not None:
        return f"convoy {convoy.key!r} is parked: release it before (arriero convoy release)"
    if keeps_some:
        return f"convoy {convoy.key!r}: a ledger has tasks for it that are not let go: submit that to its end, or discard it"
    return None


def explain_kept_ledger(ledger: LedgerRow, ended_before: Instant) -> str | None:
    """Return why a ledger cannot be removed now, its tasks aside."""
    said = f"ledger {ledger.ledger_id!r}"
    if ledger.state in (LedgerState.WRITING, LedgerState.DISCARDING):
        return f"{said} is {ledger.state}: submit it to its end, or discard it (arriero ledger discard)"
    if ledger.state is LedgerState.OPENED:
        return f"{said} is opened, and its tasks are not all let go: let a process run"
    if ledger.opened_at is None or ledger.opened_at > ended_before:
        return f"{said} was opened within purge.idempotency_keep_seconds: it must still answer; wait, or set that lower"
    return None


# --- what remains in the store's own history
def hash_heads(heads_of: Iterable[tuple[int, int, str]]) -> str:
    """Return one hash over the last links (stream, link, head) of what was removed."""
    heads = "\n".join(f"{stream}:{link}:{head}" for stream, link, head in heads_of)
    return hashlib.blake2b(heads.encode(), digest_size=16).hexdigest()


def build_tasks_purged(heads_of: Sequence[tuple[int, int, str]]) -> TasksPurged:
    """Build the event of tasks (task_no, link, head) that were removed."""
    return TasksPurged(len(heads_of), hash_heads(heads_of))


def build_convoy_purged(convoy: ConvoyRow) -> ConvoysPurged:
    """Build the event of a convoy that was removed with its own history."""
    return ConvoysPurged(1, hash_heads([(-convoy.convoy_no, convoy.link, convoy.head)]))


def build_ledger_purged(rows: Iterable[tuple[int, str]]) -> LedgerPurged:
    """Build the event of a ledger that was removed with the events of these rows (link, hash) of the store's own history."""
    return LedgerPurged(tuple(rows))
