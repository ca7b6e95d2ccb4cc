"""Breakers of Agents that both databases find and keep by statements of the same names."""

from collections.abc import Sequence
from typing import Any

import msgspec

from ...breakers import BreakerRow
from ...core.breaker import REMEMBERED_SECONDS
from ...model import Instant, later
from ..rows import Row
from .rows import SqlRows, StatementAnswer


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
        found = self.read_shared(BreakerRow, rows)
        for agent in agents:
            self._breakers[agent] = [row for row in found if row.agent == agent]

    def breakers(self, agent: str) -> list[BreakerRow]:
        if agent not in self._breakers:
            self.keep_breakers((agent,), self.ask_breakers_of((agent,)).fetchall())
        return self._breakers[agent]

    def lock_breaker(self, app: str, agent: str, target: str) -> BreakerRow | None:
        found = self.ask_of_agents("lock_breaker", {"app": app, "agent": agent, "target": target}).fetchall()
        return next(iter(self.read_shared(BreakerRow, found)), None)

    def put_breaker(self, breaker: BreakerRow) -> None:
        self._breakers.pop(breaker.agent, None)
        self.ask_of_agents("put_breaker", _parameters_of(breaker))

    def add_breaker(self, breaker: BreakerRow) -> None:
        self._breakers.pop(breaker.agent, None)
        self.ask_of_agents("add_breaker", _parameters_of(breaker))

    def read_floor(self, name: str) -> int:
        row = self.ask("select_meta", {"name": name}).fetchone()
        return 0 if row is None else int(row[0])

    def close_breaker_alert(self, breaker: BreakerRow, at: Instant) -> None:
        self.ask("close_breaker_alert", {"step": breaker.label, "code": breaker.app, "at": at})

    def select_half_open_breakers(self) -> list[BreakerRow]:
        return self.read_shared(BreakerRow, self.ask_of_agents("select_half_open_breakers", {}).fetchall())

    def select_all_breakers(self) -> list[BreakerRow]:
        """All breakers that were ever opened or paused, by Agent, App and target."""
        return self.read_shared(BreakerRow, self.ask_of_agents("list_breakers", {}).fetchall())


def _parameters_of(breaker: BreakerRow) -> dict[str, Any]:
    return msgspec.structs.asdict(breaker) | {"state": str(breaker.state)}
