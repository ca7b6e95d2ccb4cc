"""Limits of Agents that both databases find and keep by statements of the same names."""

from collections.abc import Sequence
from typing import Any

import msgspec

from ...limits import AgentLimitsRow, RateRow
from ...model import Instant
from ..rows import Row
from .rows import SqlRows, StatementAnswer


class SqlLimitRows(SqlRows):
    """``store.engine.limits.LimitEngineRows``, as far as both databases do the same."""

    _limits: dict[str, list[AgentLimitsRow]]  # by Agent, as this transaction has read them

    def ask_limits(self, agents: Sequence[str]) -> StatementAnswer:
        """Ask for the limits of some Agents; the answer is for ``keep_limits``."""
        return self.ask_of_agents("select_limits", {"agents": list(agents)})

    def keep_limits(self, agents: Sequence[str], rows: Sequence[Row]) -> None:
        """Keep the limits of some Agents as they were read."""
        found = self.read_shared(AgentLimitsRow, rows)
        for agent in agents:
            self._limits[agent] = [row for row in found if row.agent == agent]

    def limits(self, agent: str) -> list[AgentLimitsRow]:
        if agent not in self._limits:
            self.keep_limits((agent,), self.ask_limits((agent,)).fetchall())
        return self._limits[agent]

    def lock_limits(self, app: str, agents: Sequence[str]) -> list[AgentLimitsRow]:
        found = self.ask_of_agents("lock_limits", {"app": app, "agents": list(agents)})
        return self.read_shared(AgentLimitsRow, found.fetchall())

    def put_limits(self, row: AgentLimitsRow) -> None:
        self._limits.pop(row.agent, None)
        self.ask_of_agents("put_limits", msgspec.structs.asdict(row))

    def flush(self) -> None:
        """Write what was kept back."""
        raise NotImplementedError

    def _ask_steps(self, name: str, **parameters: Any) -> list[Row]:
        self.flush()  # what this transaction has changed counts
        return self.ask(name, parameters).fetchall()

    def count_running_keys(self, agent: str, apps: Sequence[str], since: Instant) -> list[tuple[str, int]]:
        return [
            (keys, count)
            for keys, count in self._ask_steps("count_running_keys", agent=agent, apps=list(apps), since=since)
        ]

    def count_running_keyless(self, agent: str, apps: Sequence[str], since: Instant) -> int:
        ((count,),) = self._ask_steps("count_running_keyless", agent=agent, apps=list(apps), since=since)
        return int(count)

    def has_keyless(self, agent: str, apps: Sequence[str]) -> bool:
        ((found,),) = self._ask_steps("has_keyless", agent=agent, apps=list(apps))
        return bool(found)

    def select_waiting_keys(self, agent: str, own: str, after: str, limit: int) -> list[str]:
        found = self._ask_steps("select_waiting_keys", agent=agent, own=own, after=after, limit=limit)
        return [keys for (keys,) in found]

    def select_rates(self, app: str, agent: str, keys: Sequence[str]) -> list[RateRow]:
        found = self.ask_of_agents("select_rates", {"app": app, "agent": agent, "keys": list(keys)})
        return self.read_shared(RateRow, found.fetchall())

    def put_rate(self, rate: RateRow) -> None:
        self.ask_of_agents("put_rate", msgspec.structs.asdict(rate))

    def select_all_limits(self) -> list[AgentLimitsRow]:
        return self.read_shared(AgentLimitsRow, self.ask("list_limits").fetchall())

    def select_known_rates(self, app: str, agent: str, now: Instant) -> list[RateRow]:
        found = self.ask("list_rates", {"app": app, "agent": agent, "now": now})
        return self.read_shared(RateRow, found.fetchall())

    def delete_old_rates(self, before: Instant) -> None:
        self.ask("remove_old_rates", {"before": before})
