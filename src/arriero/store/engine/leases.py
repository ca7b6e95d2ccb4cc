"""Leases. The rules are in ``core.lease``; stores find, lock and keep the rows."""

from collections.abc import Sequence

import msgspec

from ...core import lease
from ...core.obsolete_rows import TERM_FLOOR
from ...epoch import compute_first_number
from ...events.store import LeaseBroken, LeaseGranted, LeaseLost
from ...model import Instant, LeaseHolder, LeaseRow
from ..sql.store_rows import StoreRows
from .batch import note_in_store
from .transactions import Lane, Transactions, writes


def acquire_lease(rows: StoreRows, name: str, holder: LeaseHolder, actor: str, seconds: float) -> LeaseRow:
    """See ``LeaseOperations.acquire_lease``."""
    seen = rows.select_lease(name)
    if seen is not None and lease.is_led_by_another(seen, holder, rows.read_clock()):
        return seen  # unlocked: whoever leads must not wait for those who ask
    if seen is None:
        rows.add_lease(name)
    while (row := rows.lock_lease(name, to_grant=True)) is None:
        rows.add_lease(name)  # upkeep has just removed it
    first_term = max(compute_first_number(rows.read_epoch()), rows.read_floor(TERM_FLOOR) + 1 if not row.term else 0)
    granted = lease.grant_lease(row, holder, rows.read_clock(), seconds, first_term)
    if granted is None:
        return row
    if granted.term != row.term:
        note_in_store(rows, actor, LeaseGranted(name, granted.term, *_split(holder)))
    rows.put_lease(granted)
    return granted


def renew_lease(rows: StoreRows, name: str, holder: LeaseHolder, term: int, seconds: float) -> bool:
    """Prolong it, only for (holder, term). False: it is another's, was broken, or has lapsed."""
    row = rows.lock_lease(name)
    prolonged = None if row is None else lease.prolong_lease(row, holder, term, rows.read_clock(), seconds)
    if prolonged is not None:
        rows.put_lease(prolonged)
    return prolonged is not None


def release_lease(rows: StoreRows, name: str, holder: LeaseHolder, term: int, actor: str) -> None:
    """Give it back. Nothing happens if it is another's."""
    row = rows.lock_lease(name)
    released = None if row is None else lease.release_lease(row, holder, term)
    if released is not None:
        rows.put_lease(released)
        note_in_store(rows, actor, LeaseLost(name, term, *_split(holder)))


def break_lease(rows: StoreRows, name: str, actor: str, reason: str, *, at_once: bool) -> LeaseRow | None:
    """Take it from its holder; answers how it stands then. None: nobody holds it. See ``core.lease.break_lease``."""
    row = rows.lock_lease(name, to_grant=True)
    broken = None if row is None else lease.break_lease(row, rows.read_clock(), actor, reason, at_once=at_once)
    if broken is not None:
        assert broken.holder is not None
        rows.put_lease(broken)
        note_in_store(rows, actor, LeaseBroken(name, broken.term, *_split(broken.holder), at_once, reason))
    return broken


def free_all_leases(rows: StoreRows) -> None:
    """Free all leases, after a restore: whoever holds one may not be who holds it by the backup."""
    for row in rows.select_leases():
        rows.put_lease(msgspec.structs.replace(row, holder=None, until=Instant(0)))


def _split(holder: LeaseHolder) -> tuple[int, str]:
    """A holder as events have it: the number of a process, and the name of another holder."""
    return (holder, "") if isinstance(holder, int) else (0, holder)


class LeaseOperations(Transactions):
    """Leases that one holder at a time may have: a process, for the Supervisors' lease, or a mutex.

    Time is the store's clock. Each write touches exactly one row, and only if holder and term are still as the caller says.
    """

    renew_lease = writes(renew_lease, Lane.RENEWALS)
    release_lease = writes(release_lease)
    break_lease = writes(break_lease)

    async def acquire_lease(self, name: str, holder: LeaseHolder, actor: str, seconds: float) -> LeaseRow:
        """Take a lease that is free, lapsed or held by this holder (same term then); answers how it stands now."""
        return await self._reporting(
            self._write(lambda rows: acquire_lease(rows, name, holder, actor, seconds), Lane.OTHERS)
        )

    async def list_leases(self) -> tuple[Instant, Sequence[LeaseRow]]:
        """The store's clock, and all leases by name."""
        return await self._read(lambda rows: (rows.read_clock(), rows.select_leases()))

    async def find_lease(self, name: str) -> tuple[Instant, LeaseRow | None]:
        """The store's clock, and one lease; None: nobody ever held it."""
        return await self._read(lambda rows: (rows.read_clock(), rows.select_lease(name)))
