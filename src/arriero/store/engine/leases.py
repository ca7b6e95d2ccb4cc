"""Leases. The rules are in ``core.lease``; stores find, lock and keep the rows."""

from collections.abc import Sequence
from typing import Protocol, TypeVar

import msgspec

from ...core import lease
from ...core.obsolete_rows import TERM_FLOOR
from ...epoch import compute_first_number
from ...events.store import LeaseBroken, LeaseGranted, LeaseLost
from ...model import Instant, LeaseHolder, LeaseRow
from .batch import note_in_store
from .transactions import Lane, Transactions, UnreadableRows


class LeaseTable(UnreadableRows, Protocol):
    """Rows of leases inside one transaction."""

    def select_lease(self, name: str) -> LeaseRow | None:
        """A lease as it stands, which others may change."""
        ...

    def select_leases(self) -> Sequence[LeaseRow]:
        """All leases by name."""
        ...

    def add_lease(self, name: str) -> None:
        """Keep a lease that nobody holds, unless there is one."""
        ...

    def lock_lease(self, name: str, *, to_grant: bool = False) -> LeaseRow | None:
        """A lease, ours until the transaction ends.

        Args:
            to_grant: wait also for transactions that are guarded by its term; a renewal must not wait for them.
        """
        ...

    def put_lease(self, lease: LeaseRow) -> None: ...

    def read_floor(self, name: str) -> int:
        """A setting of the store that only grows; 0: it was never raised. See ``core.obsolete_rows``."""
        ...

    def read_epoch(self) -> int:
        """The store's life: the first, or that since it was restored last."""
        ...


def acquire_lease(rows: LeaseTable, name: str, holder: LeaseHolder, actor: str, seconds: float) -> LeaseRow:
    """See ``LeaseStore.acquire_lease``."""
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


def renew_lease(rows: LeaseTable, name: str, holder: LeaseHolder, term: int, seconds: float) -> bool:
    """See ``LeaseStore.renew_lease``."""
    row = rows.lock_lease(name)
    prolonged = None if row is None else lease.prolong_lease(row, holder, term, rows.read_clock(), seconds)
    if prolonged is not None:
        rows.put_lease(prolonged)
    return prolonged is not None


def release_lease(rows: LeaseTable, name: str, holder: LeaseHolder, term: int, actor: str) -> None:
    """See ``LeaseStore.release_lease``."""
    row = rows.lock_lease(name)
    released = None if row is None else lease.release_lease(row, holder, term)
    if released is not None:
        rows.put_lease(released)
        note_in_store(rows, actor, LeaseLost(name, term, *_split(holder)))


def break_lease(rows: LeaseTable, name: str, actor: str, reason: str, *, at_once: bool) -> LeaseRow | None:
    """See ``LeaseStore.break_lease``."""
    row = rows.lock_lease(name, to_grant=True)
    broken = None if row is None else lease.break_lease(row, rows.read_clock(), actor, reason, at_once=at_once)
    if broken is not None:
        assert broken.holder is not None
        rows.put_lease(broken)
        note_in_store(rows, actor, LeaseBroken(name, broken.term, *_split(broken.holder), at_once, reason))
    return broken


def free_all_leases(rows: LeaseTable) -> None:
    """Free all leases, after a restore: whoever holds one may not be who holds it by the backup."""
    for row in rows.select_leases():
        rows.put_lease(msgspec.structs.replace(row, holder=None, until=Instant(0)))


def _split(holder: LeaseHolder) -> tuple[int, str]:
    """A holder as events have it: the number of a process, and the name of another holder."""
    return (holder, "") if isinstance(holder, int) else (0, holder)


R = TypeVar("R", bound=LeaseTable)


class LeaseEngine(Transactions[R]):
    """``store.contract_parts.LeaseStore`` over any store's rows."""

    async def acquire_lease(self, name: str, holder: LeaseHolder, actor: str, seconds: float) -> LeaseRow:
        return await self._write_and_report(lambda rows: acquire_lease(rows, name, holder, actor, seconds), Lane.OTHERS)

    async def renew_lease(self, name: str, holder: LeaseHolder, term: int, seconds: float) -> bool:
        return await self._write(lambda rows: renew_lease(rows, name, holder, term, seconds), Lane.RENEWALS)

    async def release_lease(self, name: str, holder: LeaseHolder, term: int, actor: str) -> None:
        await self._write(lambda rows: release_lease(rows, name, holder, term, actor))

    async def break_lease(self, name: str, actor: str, reason: str, *, at_once: bool) -> LeaseRow | None:
        return await self._write(lambda rows: break_lease(rows, name, actor, reason, at_once=at_once))

    async def list_leases(self) -> tuple[Instant, Sequence[LeaseRow]]:
        return await self._read(lambda rows: (rows.read_clock(), rows.select_leases()))

    async def find_lease(self, name: str) -> tuple[Instant, LeaseRow | None]:
        return await self._read(lambda rows: (rows.read_clock(), rows.select_lease(name)))
