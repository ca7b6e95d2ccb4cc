"""Rows that nothing refers to any more, which both databases find and remove by statements of the same names."""

from collections.abc import Sequence

from ...breakers import BreakerKey, BreakerRow
from ...model import Instant, LeaseRow
from ...processes import ProcessRow
from .rows import SqlRows


class SqlObsoleteRows(SqlRows):
    """``engine.obsolete_rows.ObsoleteRows`` inside one transaction."""

    def select_unnamed_processes(self, before: Instant, limit: int) -> list[ProcessRow]:
        found = self.ask("select_unnamed_processes", {"before": before, "limit": limit})
        return self.read_shared(ProcessRow, found.fetchall())

    def select_code_of_processes(self) -> list[tuple[str, int]]:
        return [(about, process_no) for about, process_no in self.ask("select_code_of_processes").fetchall()]

    def remove_processes(self, process_nos: Sequence[int]) -> None:
        self.ask("delete_processes", {"process_nos": list(process_nos)})
        self.arrive()

    def lock_old_leases(self, before: Instant, limit: int) -> list[LeaseRow]:
        return self.read_shared(LeaseRow, self.ask("lock_old_leases", {"before": before, "limit": limit}).fetchall())

    def remove_leases(self, names: Sequence[str]) -> None:
        self.ask("delete_leases", {"names": list(names)})
        self.arrive()

    def lock_old_breakers(self, before: Instant, limit: int) -> list[BreakerRow]:
        found = self.ask_of_agents("lock_old_breakers", {"before": before, "limit": limit})
        return self.read_shared(BreakerRow, found.fetchall())

    def remove_breakers(self, keys: Sequence[BreakerKey]) -> None:
        for app, agent, target in keys:
            self.ask_of_agents("delete_breaker", {"app": app, "agent": agent, "target": target})
        self.arrive()

    def remove_told_alerts(self, before: Instant, limit: int) -> int:
        removed = self.ask("delete_told_alerts", {"before": before, "limit": limit})
        self.arrive()
        return removed.rowcount

    def raise_floor(self, name: str, value: int) -> None:
        self.ask("raise_meta", {"name": name, "value": str(value)})
