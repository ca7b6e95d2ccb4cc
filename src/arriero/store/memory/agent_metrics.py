"""Counts of calls and the load of Agents in the memory store."""

from collections import Counter
from collections.abc import Sequence

from ...core.lease import is_held
from ...inspection.facts import AgentLoad, Backlog, CountsRow
from ...model import Instant, StepKind, StepState, TaskState, Turn
from ..sql.agent_rows import AgentMetricsRows, build_loads
from .rows import MemoryUpkeep


class MemoryAgentMetrics(MemoryUpkeep, AgentMetricsRows):
    """See ``AgentMetricsRows``."""

    def put_counts(self, row: CountsRow) -> None:
        kept = self.count_rows.get(_key_of(row))
        if not self.process_is_retired(row.process_no) and (kept is None or row.calls >= kept.calls):
            self._put(self.count_rows, _key_of(row), row)

    def select_apps_to_fold(self, before: int) -> list[str]:
        return sorted({row.app for row in self.count_rows.values() if row.process_no and row.minute < before})

    def lock_total(self, app: str) -> CountsRow:
        nothing = CountsRow(app=app, process_no=0, minute=0, calls=0, counts="{}")
        return self._quarantine.read_shared(self.count_rows.get(_key_of(nothing), nothing))

    def select_counts_before(self, app: str, before: int, limit: int) -> list[CountsRow]:
        found = (row for row in self.count_rows.values() if row.app == app and row.process_no and row.minute < before)
        first = sorted(found, key=lambda row: (row.minute, row.process_no))[:limit]
        return [self._quarantine.read_shared(row) for row in first]

    def put_total(self, total: CountsRow) -> None:
        self._put(self.count_rows, _key_of(total), total)

    def remove_counts(self, rows: Sequence[CountsRow]) -> None:
        for row in rows:
            self._remove(self.count_rows, _key_of(row))

    def select_all_counts(self) -> list[CountsRow]:
        return [self._quarantine.read_shared(self.count_rows[key]) for key in sorted(self.count_rows)]

    def measure_loads(self, now: Instant) -> list[AgentLoad]:
        rows = [row for of_task in self.steps.values() for row in of_task.values() if row.kind is not StepKind.TIMER]
        times: dict[tuple[str, str], list[Instant]] = {}
        for row in rows:
            if row.state is StepState.PENDING and row.not_before is not None:
                times.setdefault((row.app, row.agent), []).append(row.not_before)
        running = Counter((row.app, row.agent) for row in rows if row.complete_by is not None)
        asked = [(*key, *_count_requests(of_agent, now)) for key, of_agent in times.items()]
        return build_loads(asked, [(*key, count) for key, count in running.items()])

    def select_backlog(self, now: Instant, limit: int) -> Backlog:
        tasks = list(self.tasks.values())
        free = [t.not_before for t in tasks if t.locked_by is None and t.paused_at is None and t.not_before is not None]
        due = [at for at in free if at <= now]
        shown = [convoy.shown for convoy in self.convoys.values()]
        looks = [row.look_at for row in self.schedule_rows.values() if row.look_at is not None and row.look_at <= now]
        return Backlog(
            now=now,
            held=min(sum(t.locked_by is not None for t in tasks), limit),
            due=min(len(due), limit),
            oldest_due_at=min(due, default=None),
            later=min(len(free) - len(due), limit),
            in_convoy=min(sum(t.turn is Turn.WAITING for t in tasks), limit),
            error=min(sum(t.state is TaskState.ERROR for t in tasks), limit),
            convoys_stopped=min(shown.count("stopped"), limit),
            convoys_in_gap=min(shown.count("gap"), limit),
            convoys_parked=min(shown.count("parked"), limit),
            alerts=min(sum(a.closed_at is None for a in self.alert_rows.values()), limit),
            statuses=min(len(self.statuses), limit),
            oldest_status_at=min((s.at for s in self.statuses.values()), default=None),
            schedules_due=min(len(looks), limit),
            oldest_schedule_at=min(looks, default=None),
            leases=sum(is_held(lease, now) for lease in self.leases.values()),
        )


def _count_requests(times: list[Instant], now: Instant) -> tuple[int, Instant | None, int]:
    due = [at for at in times if at <= now]
    return len(due), min(due, default=None), len(times) - len(due)


def _key_of(row: CountsRow) -> tuple[str, int, int]:
    return row.app, row.process_no, row.minute
