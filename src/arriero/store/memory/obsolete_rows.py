"""Rows that nothing refers to any more, in the memory store."""

from collections.abc import Sequence

from ...breakers import BreakerKey, BreakerRow, BreakerState
from ...core.lease import SUPERVISORS
from ...model import Instant, LeaseRow
from ...processes import ProcessRow
from ..sql.store_rows import ObsoleteRows
from .rows import MemoryUpkeep


class MemoryObsoleteRows(MemoryUpkeep, ObsoleteRows):
    """See ``ObsoleteRows``."""

    def select_unnamed_processes(self, before: Instant, limit: int) -> list[ProcessRow]:
        named = {lease.holder for lease in self.leases.values()} | {process_no for _, process_no, _ in self.count_rows}
        old = (row for row in self.processes.values() if row.retired and row.lease_until <= before)
        last = max(self.processes, default=0)
        found = [row for row in old if row.process_no not in named and row.process_no < last]
        found = [row for row in found if not self._held_by(row.process_no)]
        return sorted(found, key=lambda row: row.process_no)[:limit]

    def select_code_of_processes(self) -> list[tuple[str, int]]:
        newest: dict[str, int] = {}
        for row in self.processes.values():
            newest[row.about] = max(newest.get(row.about, 0), row.process_no)
        return list(newest.items())

    def remove_processes(self, process_nos: Sequence[int]) -> None:
        for process_no in process_nos:
            self._remove(self.processes, process_no)

    def lock_old_leases(self, before: Instant, limit: int) -> list[LeaseRow]:
        rows = (row for row in self.select_leases() if row.until <= before and row.since <= before)
        return [row for row in rows if row.name != SUPERVISORS][:limit]

    def remove_leases(self, names: Sequence[str]) -> None:
        for name in names:
            self._remove(self.leases, name)

    def lock_old_breakers(self, before: Instant, limit: int) -> list[BreakerRow]:
        closed = (row for row in self.select_all_breakers() if row.state is BreakerState.CLOSED)
        return [row for row in closed if row.paused_at is None and row.changed_at <= before][:limit]

    def remove_breakers(self, keys: Sequence[BreakerKey]) -> None:
        for key in keys:
            self._remove(self.breaker_rows, key)

    def remove_told_alerts(self, before: Instant, limit: int) -> int:
        closed = [(row.closed_at, row) for row in self.alert_rows.values() if not row.task_no and row.next_at is None]
        found = [row.no for at, row in closed if at is not None and at <= before][:limit]
        for number in found:
            self._remove(self.alert_rows, number)
        return len(found)

    def raise_floor(self, name: str, value: int) -> None:
        self._put(self.floors, name, max(self.floors.get(name, 0), value))
