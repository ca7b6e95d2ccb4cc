"""Counts of calls and the load of Agents in the memory store."""

from collections import Counter
from collections.abc import Sequence

from ...inspection.agent_metrics import AgentLoad, CountsRow
from ...model import Instant, StepKind, StepState
from ..metrics_contract import build_loads
from .rows import MemoryUpkeep


class MemoryAgentMetrics(MemoryUpkeep):
    """See ``engine.agent_metrics.AgentMetricsRows``."""

    def put_counts(self, row: CountsRow) -> None:
        kept = self.count_rows.get(_key_of(row))
        if not self.process_is_retired(row.process_no) and (kept is None or row.calls >= kept.calls):
            self._put(self.count_rows, _key_of(row), row)

    def select_apps_to_fold(self, before: int) -> list[str]:
        return sorted({row.app for row in self.count_rows.values() if row.process_no and row.minute < before})

    def lock_total(self, app: str) -> CountsRow:
        nothing = CountsRow(app=app, process_no=0, minute=0, calls=0, counts="{}")
        return self.count_rows.get(_key_of(nothing), nothing)

    def select_counts_before(self, app: str, before: int, limit: int) -> list[CountsRow]:
        found = (row for row in self.count_rows.values() if row.app == app and row.process_no and row.minute < before)
        return sorted(found, key=lambda row: (row.minute, row.process_no))[:limit]

    def put_total(self, total: CountsRow) -> None:
        self._put(self.count_rows, _key_of(total), total)

    def remove_counts(self, rows: Sequence[CountsRow]) -> None:
        for row in rows:
            self._remove(self.count_rows, _key_of(row))

    def select_all_counts(self) -> list[CountsRow]:
        return [self.count_rows[key] for key in sorted(self.count_rows)]

    def measure_loads(self, now: Instant) -> list[AgentLoad]:
        rows = [row for of_task in self.steps.values() for row in of_task.values() if row.kind is not StepKind.TIMER]
        times: dict[tuple[str, str], list[Instant]] = {}
        for row in rows:
            if row.state is StepState.PENDING and row.not_before is not None:
                times.setdefault((row.app, row.agent), []).append(row.not_before)
        running = Counter((row.app, row.agent) for row in rows if row.complete_by is not None)
        asked = [(*key, *_count_requests(of_agent, now)) for key, of_agent in times.items()]
        return build_loads(asked, [(*key, count) for key, count in running.items()])


def _count_requests(times: list[Instant], now: Instant) -> tuple[int, Instant | None, int]:
    due = [at for at in times if at <= now]
    return len(due), min(due, default=None), len(times) - len(due)


def _key_of(row: CountsRow) -> tuple[str, int, int]:
    return row.app, row.process_no, row.minute
