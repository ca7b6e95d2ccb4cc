"""Metrics of Agents in one transaction: keeping what a process counted, and folding old minutes. Shared by all stores."""

from collections.abc import Sequence
from functools import partial

from ...core.agent_metrics import find_first_kept, fold_counts, may_be_written
from ...inspection.facts import AgentMeasurements, Backlog, CountsRow
from ..contract import COUNTED_MAX, FOLDED_AT_ONCE
from ..sql.store_rows import StoreRows
from .transactions import Lane, Transactions


def fold_app(rows: StoreRows, app: str) -> int:
    """Fold old minutes of an App. The sum is locked first, so whoever folds at the same time finds the rows gone."""
    total = rows.lock_total(app)
    old = rows.select_counts_before(app, find_first_kept(rows.read_clock()), FOLDED_AT_ONCE)
    if old:
        rows.put_total(fold_counts(total, old))
        rows.remove_counts(old)
    return len(old)


class AgentMetricsOperations(Transactions):
    """Counts of the calls of Agents, and what waits for them."""

    async def put_agent_counts(self, rows: Sequence[CountsRow]) -> None:
        """Keep what a process counted in some minutes, as it stands: repeating it changes nothing.

        Left out: rows of a process that is retired or unknown; minutes that may not be written any more
        (``core.agent_metrics.may_be_written``); a row with fewer calls than the one that is kept.
        """

        def put(table: StoreRows) -> None:
            now = table.read_clock()
            for row in rows:
                if may_be_written(row.minute, now):
                    table.put_counts(row)

        await self._write(put, Lane.OUTBOX)  # not UPKEEP: on SQLite that would cost the rows that are remembered

    async def fold_agent_counts(self) -> int:
        """Add minutes that are no longer kept to the sum of their App, and remove them in the same transaction.

        At most ``FOLDED_AT_ONCE`` of each App. Returns how many rows are gone; two that fold at once do not count twice.
        """
        before = find_first_kept(self.now())  # found by reading, so that nothing is locked where nothing is old
        apps = await self._read(lambda rows: rows.select_apps_to_fold(before), Lane.SURVEYS)
        return sum([await self._write(partial(fold_app, app=app), Lane.UPKEEP) for app in apps])

    async def measure_agents(self) -> AgentMeasurements:
        """All counts, and the due requests and running attempts of each Agent, as of one moment."""

        def measure(rows: StoreRows) -> AgentMeasurements:
            now = rows.read_clock()
            counts, loads = rows.select_all_counts(), rows.measure_loads(now)
            return AgentMeasurements(now=now, counts=tuple(counts), loads=tuple(loads))

        return await self._read(measure, Lane.SURVEYS)

    async def measure_backlog(self) -> Backlog:
        """Measure the backlog. It reads only unfinished tasks and steps, and at most a fixed number of each kind."""
        return await self._read(lambda rows: rows.select_backlog(rows.read_clock(), COUNTED_MAX), Lane.SURVEYS)
