"""Breakers of Agents that both databases find and keep by statements of the same names."""

from collections.abc import Sequence
from typing import Any

import msgspec

from ...breakers import BreakerRow, BreakerState
from ...core.breaker import REMEMBERED_SECONDS
from ...model import Instant, later
from ..rows import Row
from .rows import SqlRows, StatementAnswer

_STATE = BreakerRow.__struct_fields__.index("state")


def breaker_of(row: Row) -> BreakerRow:
    """A breaker; its columns are its fields."""
    fields = dict(zip(BreakerRow.__struct_fields__, row, strict=True))
    return BreakerRow(**fields | {"state": BreakerState(row[_STATE])})


class SqlBreakerRows(SqlRows):
    """The ``BreakerRows`` of ``core.changes`` inside one transaction, and what the engine does with them."""

    _breakers: dict[str, list[BreakerRow]]  # by Agent, as this transaction has read and changed them

    def read_recent_clock(self) -> Instant:
        """The store's clock, as far as it is known without asking."""
        raise NotImplementedError

    def ask_breakers_of(self, agents: Sequence[str]) -> StatementAnswer:
        """Ask for the breakers of some Agents; the answer is for ``keep_breakers``."""
        since = later(self.read_recent_clock(), -REMEMBERED_SECONDS)
        return self.ask_of_agents("select_breakers", {"agents": list(agents), "since": since})

    def keep_breakers(self, agents: Sequence[str], rows: Sequence[Row]) -> None:
        """Keep the breakers of some Agents as they were read."""
        found = list(map(breaker_of, rows))
        for agent in agents:
            self._breakers[agent] = [row for row in found if row.agent == agent]

    def breakers(self, agent: str) -> list[BreakerRow]:
        if agent not in self._breakers:
            self.keep_breakers((agent,), self.ask_breakers_of((agent,)).fetchall())
        return self._breakers[agent]

    def lock_breaker(self, app: str, agent: str, target: str) -> BreakerRow | None:
        row = self.ask_of_agents("lock_breaker", {"app": app, "agent": agent, "target": target}).fetchone()
        return None if row is None else breaker_of(row)

    def put_breaker(self, breaker: BreakerRow) -> None:
        self._breakers.pop(breaker.agent, None)
        self.ask_of_agents("put_breaker", _parameters_of(breaker))

    def add_breaker(self, breaker: BreakerRow) -> None:
        self._breakers.pop(breaker.agent, None)
        self.ask_of_agents("add_breaker", _parameters_of(breaker))

    def close_breaker_alert(self, breaker: BreakerRow, at: Instant) -> None:
        self.ask("close_breaker_alert", {"step": breaker.label, "code": breaker.app, "at": at})

    def select_all_breakers(self) -> list[BreakerRow]:
        """All breakers that were ever opened or paused, by Agent, App and target."""
        return [breaker_of(row) for row in self.ask_of_agents("list_breakers", {}).fetchall()]


def _parameters_of(breaker: BreakerRow) -> dict[str, Any]:
    return msgspec.structs.asdict(breaker) | {"state": str(breaker.state)}
