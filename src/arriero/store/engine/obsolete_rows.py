"""Removal of rows of processes, leases and breakers that nothing refers to any more. Shared by all stores."""

from collections.abc import Sequence
from typing import Protocol, TypeVar

from ...breakers import BreakerKey, BreakerRow
from ...core.obsolete_rows import (
    FENCE_FLOOR,
    TERM_FLOOR,
    find_newest,
    is_obsolete_breaker,
    is_obsolete_lease,
    list_obsolete_processes,
)
from ...model import Instant, LeaseRow
from ...processes import ProcessRow
from ..contract_parts import RemovedRows
from .processes import ProcessRows
from .transactions import Lane, Transactions


class ObsoleteRows(ProcessRows, Protocol):
    """Rows that may be obsolete, inside one transaction. Those that are locked are passed over by others."""

    def select_unnamed_processes(self, before: Instant, limit: int) -> list[ProcessRow]:
        """Retired processes whose lease had lapsed by then, and that no task, step, lease or count names; oldest first."""
        ...

    def select_code_of_processes(self) -> list[tuple[str, int]]:
        """Each text by which processes describe themselves, once, with the number of the last process that does."""
        ...

    def remove_processes(self, process_nos: Sequence[int]) -> None: ...

    def lock_old_leases(self, before: Instant, limit: int) -> list[LeaseRow]:
        """Leases that had lapsed by then, locked."""
        ...

    def remove_leases(self, names: Sequence[str]) -> None: ...

    def lock_old_breakers(self, before: Instant, limit: int) -> list[BreakerRow]:
        """Closed breakers that had not changed since then, locked."""
        ...

    def remove_breakers(self, keys: Sequence[BreakerKey]) -> None: ...

    def remove_told_alerts(self, before: Instant, limit: int) -> int:
        """Remove alerts of no task that were closed by then and that every sink knows; answers how many."""
        ...

    def raise_floor(self, name: str, value: int) -> None:
        """Raise a setting of the store that only grows; see ``read_floor``."""
        ...


def remove_obsolete_processes(rows: ObsoleteRows, before: Instant, limit: int) -> int:
    """Remove the rows of processes that are retired, older than the newest with their code, and named by nothing."""
    found = rows.select_unnamed_processes(before, limit)
    numbers = list_obsolete_processes(found, find_newest(rows.select_code_of_processes()), before) if found else []
    if numbers:
        rows.remove_processes(numbers)
    return len(numbers)


def remove_obsolete_leases(rows: ObsoleteRows, before: Instant, limit: int) -> int:
    """Remove the leases that were not held since ``before``. Terms of leases that get a row again lie above theirs."""
    found = [row for row in rows.lock_old_leases(before, limit) if is_obsolete_lease(row, before)]
    if found:
        rows.raise_floor(TERM_FLOOR, max(row.term for row in found))
        rows.remove_leases([row.name for row in found])
    return len(found)


def remove_obsolete_breakers(rows: ObsoleteRows, before: Instant, limit: int) -> int:
    """Remove the breakers that have been closed since ``before``. Fences of breakers that get a row again lie above theirs."""
    now = rows.read_clock()
    found = [row for row in rows.lock_old_breakers(before, limit) if is_obsolete_breaker(row, before, now)]
    if found:
        rows.raise_floor(FENCE_FLOOR, max(row.fence for row in found))
        rows.remove_breakers([(row.app, row.agent, row.target) for row in found])
    return len(found)


R = TypeVar("R", bound=ObsoleteRows)


class ObsoleteRowsEngine(Transactions[R]):
    """``store.contract_parts.ObsoleteRowsStore``, the same for all stores."""

    async def remove_obsolete_rows(self, before: Instant, breakers_before: Instant, limit: int) -> RemovedRows:
        processes = await self._write(lambda rows: remove_obsolete_processes(rows, before, limit), Lane.UPKEEP)
        leases = await self._write(lambda rows: remove_obsolete_leases(rows, before, limit), Lane.UPKEEP)
        breakers = await self._write(lambda rows: remove_obsolete_breakers(rows, breakers_before, limit), Lane.UPKEEP)
        alerts = await self._write(lambda rows: rows.remove_told_alerts(before, limit), Lane.UPKEEP)
        return RemovedRows(processes=processes, leases=leases, breakers=breakers, alerts=alerts)
