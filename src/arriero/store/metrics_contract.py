"""Metrics of Agents, a part of the contract in ``store.contract``. Nothing that any work depends on is decided by them."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

from ..inspection.agent_metrics import AgentLoad, AgentMeasurements, CountsRow

if TYPE_CHECKING:  # only monitors pay for loading it
    from ..inspection.backlog import Backlog

COUNTED_MAX = 10_000  # of each kind: enough for a trend and an alarm, few enough to count within milliseconds
FOLDED_AT_ONCE = 200  # rows in one transaction; each holds all Agents of a process in one minute


class AgentMetricsStore(Protocol):
    """Counts of the calls of Agents, and what waits for them."""

    async def put_agent_counts(self, rows: Sequence[CountsRow]) -> None:
        """Keep what a process counted in some minutes, as it stands: repeating it changes nothing.

        Left out: rows of a process that is retired or unknown; minutes that may not be written any more
        (``core.agent_metrics.may_be_written``); a row with fewer calls than the one that is kept.
        """
        ...

    async def fold_agent_counts(self) -> int:
        """Add minutes that are no longer kept to the sum of their App, and remove them in the same transaction.

        At most ``FOLDED_AT_ONCE`` of each App. Returns how many rows are gone; two that fold at once do not count twice.
        """
        ...

    async def measure_agents(self) -> AgentMeasurements:
        """All counts, and the due requests and running attempts of each Agent, as of one moment."""
        ...

    async def measure_backlog(self) -> "Backlog":
        """Measure the backlog. It reads only unfinished tasks and steps, and at most a fixed number of each kind."""
        ...


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
