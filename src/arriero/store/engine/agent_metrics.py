"""Metrics of Agents in one transaction: keeping what a process counted, and folding old minutes. Shared by all stores."""

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from ...core.agent_metrics import find_first_kept, fold_counts, may_be_written
from ...inspection.facts import AgentLoad, AgentMeasurements, CountsRow
from ...model import Instant
from ..contract_parts import COUNTED_MAX, FOLDED_AT_ONCE
from .transactions import Lane, Transactions, UnreadableRows

if TYPE_CHECKING:
    from ...inspection.facts import Backlog


class AgentMetricsRows(UnreadableRows, Protocol):
    """Rows of counts, and the load of Agents."""

    def put_counts(self, row: CountsRow) -> None:
        """Keep a row, unless its process is retired or unknown, or the row that is kept has more calls."""
        ...

    def select_apps_to_fold(self, before: int) -> list[str]:
        """Apps with rows of minutes before that one."""
        ...

    def lock_total(self, app: str) -> CountsRow:
        """The sum of an App, ours until the transaction ends; it is made if there is none."""
        ...

    def select_counts_before(self, app: str, before: int, limit: int) -> list[CountsRow]:
        """Rows of an App with minutes before that one, in the order of their minutes; never its sum."""
        ...

    def put_total(self, total: CountsRow) -> None:
        """Keep a sum that this transaction has locked."""
        ...

    def remove_counts(self, rows: Sequence[CountsRow]) -> None: ...

    def select_all_counts(self) -> list[CountsRow]: ...

    def measure_loads(self, now: Instant) -> list[AgentLoad]:
        """Due requests and running attempts, by Agent and App."""
        ...

    def select_backlog(self, now: Instant, limit: int) -> "Backlog":
        """Measure the backlog. ``limit``: highest count of each kind."""
        ...


def fold_app(rows: AgentMetricsRows, app: str) -> int:
    """Fold old minutes of an App. The sum is locked first, so whoever folds at the same time finds the rows gone."""
    total = rows.lock_total(app)
    old = rows.select_counts_before(app, find_first_kept(rows.read_clock()), FOLDED_AT_ONCE)
    if old:
        rows.put_total(fold_counts(total, old))
        rows.remove_counts(old)
    return len(old)


R = TypeVar("R", bound=AgentMetricsRows)


class AgentMetricsEngine(Transactions[R]):
    """``store.contract_parts.AgentMetricsStore``, the same for all stores."""

    async def put_agent_counts(self, rows: Sequence[CountsRow]) -> None:
        def put(table: R) -> None:
            now = table.read_clock()
            for row in rows:
                if may_be_written(row.minute, now):
                    table.put_counts(row)

        await self._write(put, Lane.OUTBOX)  # not UPKEEP: on SQLite that would cost the rows that are remembered

    async def fold_agent_counts(self) -> int:
        """Found by reading, so that nothing is locked where nothing is old."""
        before = find_first_kept(self.now())
        apps = await self._read(lambda rows: rows.select_apps_to_fold(before), Lane.SURVEYS)
        return sum([await self._write(partial(fold_app, app=app), Lane.UPKEEP) for app in apps])

    async def measure_agents(self) -> AgentMeasurements:
        def measure(rows: R) -> AgentMeasurements:
            now = rows.read_clock()
            counts, loads = rows.select_all_counts(), rows.measure_loads(now)
            return AgentMeasurements(now=now, counts=tuple(counts), loads=tuple(loads))

        return await self._read(measure, Lane.SURVEYS)

    async def measure_backlog(self) -> "Backlog":
        return await self._read(lambda rows: rows.select_backlog(rows.read_clock(), COUNTED_MAX), Lane.SURVEYS)


def build_loads(due: Sequence[Sequence[Any]], running: Sequence[Sequence[Any]]) -> list[AgentLoad]:
    """Build the load of each Agent, by Agent and App.

    Args:
        due: App, Agent, number of due requests, since when the oldest is due, number of those that are due later.
        running: App, Agent, number of attempts under way.
    """
    counts: dict[tuple[str, str], int] = {(app, agent): count for app, agent, count in running}
    asked: dict[tuple[str, str], Sequence[Any]] = {(app, agent): numbers for app, agent, *numbers in due}
    found: list[AgentLoad] = []
    for app, agent in sorted({*counts, *asked}, key=lambda key: (key[1], key[0])):
        number, oldest_at, later = asked.get((app, agent), (0, None, 0))
        under_way = counts.get((app, agent), 0)
        found.append(AgentLoad(app=app, agent=agent, due=number, oldest_at=oldest_at, later=later, running=under_way))
    return found
