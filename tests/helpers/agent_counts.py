"""Counts of calls, added up as tests ask for them."""

from collections.abc import Iterable

from arriero.core.agent_metrics import CountsOfAgent, CountsSum
from arriero.inspection.facts import CountsRow
from arriero.model import Instant


def sum_up(rows: Iterable[CountsRow], now: Instant, agent: str | None = None) -> dict[tuple[str, str], CountsOfAgent]:
    """The sum of some rows, by App and Agent."""
    total = CountsSum(now, agent)
    for row in rows:
        total.add_row(row)
    return total.read()
