"""Rows of processes, leases and breakers that nothing refers to any more. Values in, values out.

Upkeep removes them, so that renewals and polls read only living rows. What a removed row knew and must not come again is kept
as a floor in the store: the highest term of a removed lease, and the highest fence of a removed breaker. A lease or breaker
that gets a row again begins above it.
"""

from collections.abc import Iterable, Mapping

import msgspec

from ..breakers import BreakerRow, BreakerState
from ..model import Instant, LeaseRow, later
from ..processes import ProcessAbout, ProcessRow
from .breaker import REMEMBERED_SECONDS
from .lease import SUPERVISORS

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
