"""Removal of rows of processes, leases and breakers that nothing refers to any more. Shared by all stores."""

from ...core.obsolete_rows import (
    FENCE_FLOOR,
    TERM_FLOOR,
    find_newest,
    is_obsolete_breaker,
    is_obsolete_lease,
    list_obsolete_processes,
)
from ...model import Instant
from ..contract import RemovedRows
from ..sql.store_rows import StoreRows
from .transactions import Lane, Transactions


def remove_obsolete_processes(rows: StoreRows, before: Instant, limit: int) -> int:
    """Remove the rows of processes that are retired, older than the newest with their code, and named by nothing."""
    found = rows.select_unnamed_processes(before, limit)
    numbers = list_obsolete_processes(found, find_newest(rows.select_code_of_processes()), before) if found else []
    if numbers:
        rows.remove_processes(numbers)
    return len(numbers)


def remove_obsolete_leases(rows: StoreRows, before: Instant, limit: int) -> int:
    """Remove the leases that were not held since ``before``. Terms of leases that get a row again lie above theirs."""
    found = [row for row in rows.lock_old_leases(before, limit) if is_obsolete_lease(row, before)]
    if found:
        rows.raise_floor(TERM_FLOOR, max(row.term for row in found))
        rows.remove_leases([row.name for row in found])
    return len(found)


def remove_obsolete_breakers(rows: StoreRows, before: Instant, limit: int) -> int:
    """Remove the breakers that have been closed since ``before``. Fences of breakers that get a row again lie above theirs."""
    now = rows.read_clock()
    found = [row for row in rows.lock_old_breakers(before, limit) if is_obsolete_breaker(row, before, now)]
    if found:
        rows.raise_floor(FENCE_FLOOR, max(row.fence for row in found))
        rows.remove_breakers([(row.app, row.agent, row.target) for row in found])
    return len(found)


class ObsoleteRowsOperations(Transactions):
    """Rows of processes, leases and breakers that nothing refers to any more; ``core.obsolete_rows`` has the rules."""

    async def remove_obsolete_rows(self, before: Instant, breakers_before: Instant, limit: int) -> RemovedRows:
        """Remove obsolete rows, at most ``limit`` of each kind.

        A process that finds its row removed is refused like one that is retired. Terms of leases and fences of breakers
        continue to grow when a row is made again. With them go alerts of no task that are closed and delivered.

        Args:
            before: rows of processes, leases and alerts that were in use later stay.
            breakers_before: the same for breakers.
        """
        processes = await self._write(lambda rows: remove_obsolete_processes(rows, before, limit), Lane.UPKEEP)
        leases = await self._write(lambda rows: remove_obsolete_leases(rows, before, limit), Lane.UPKEEP)
        breakers = await self._write(lambda rows: remove_obsolete_breakers(rows, breakers_before, limit), Lane.UPKEEP)
        alerts = await self._write(lambda rows: rows.remove_told_alerts(before, limit), Lane.UPKEEP)
        return RemovedRows(processes=processes, leases=leases, breakers=breakers, alerts=alerts)
