"""Counts of calls and the load of Agents, which both databases find and keep by statements of the same names."""

from collections.abc import Sequence
from typing import Any

import msgspec

from ...inspection.facts import AgentLoad, Backlog, CountsRow
from ...model import Instant
from ..engine.agent_metrics import build_loads
from .rows import SqlRows

_BACKLOG_COLUMNS = tuple(name for name in Backlog.__struct_fields__ if name != "now")


class SqlAgentMetricsRows(SqlRows):
    """``engine.agent_metrics.AgentMetricsRows`` inside one transaction."""

    def put_counts(self, row: CountsRow) -> None:
        self.ask("put_agent_counts", msgspec.structs.asdict(row))
        self.arrive()

    def select_apps_to_fold(self, before: int) -> list[str]:
        return [app for (app,) in self.ask("select_apps_to_fold", {"before": before}).fetchall()]

    def lock_total(self, app: str) -> CountsRow:
        self.ask("add_agent_total", {"app": app})
        (total,) = self.read_shared(CountsRow, self.ask("lock_agent_total", {"app": app}).fetchall())
        return total

    def select_counts_before(self, app: str, before: int, limit: int) -> list[CountsRow]:
        asked = {"app": app, "before": before, "limit": limit}
        return self.read_shared(CountsRow, self.ask("select_agent_counts_before", asked).fetchall())

    def put_total(self, total: CountsRow) -> None:
        self.ask("put_agent_total", {"app": total.app, "calls": total.calls, "counts": total.counts})

    def remove_counts(self, rows: Sequence[CountsRow]) -> None:
        for row in rows:
            asked: dict[str, Any] = {"app": row.app, "process_no": row.process_no, "minute": row.minute}
            self.ask("remove_agent_counts", asked)
        self.arrive()

    def select_all_counts(self) -> list[CountsRow]:
        return self.read_shared(CountsRow, self.ask("select_agent_counts", {}).fetchall())

    def measure_loads(self, now: Instant) -> list[AgentLoad]:
        due, running = self.ask("measure_requests", {"now": now}), self.ask("measure_running", {})
        self.arrive()
        return build_loads(due.fetchall(), running.fetchall())

    def select_backlog(self, now: Instant, limit: int) -> Backlog:
        asked = {"now": now, "limit": limit, "priorities": list(range(10))}
        row = self.ask("measure_backlog", asked).fetchone()
        self.arrive()
        assert row is not None
        return Backlog(now=now, **dict(zip(_BACKLOG_COLUMNS, row, strict=True)))
