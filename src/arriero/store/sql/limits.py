"""Limits of Agents that both databases find and keep by statements of the same names."""

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from ...core.limits import list_waiting_keys
from ...limits import AgentLimitsRow, RateRow, WaitingKeysRow
from ...model import Instant, StepRow
from ..rows import Row
from .rows import SqlRows, StatementAnswer


def put_in_columns(rows: Sequence[WaitingKeysRow]) -> dict[str, list[Any]]:
    """Put rows in lists, one for each column, as statements take them."""
    columns = zip(*map(msgspec.structs.astuple, rows), strict=True)
    return dict(zip(("apps", "agents", "keys", "look_ats"), map(list, columns), strict=True))


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

    def lock_waiting_keys(
        self, agent: str, apps: Sequence[str], now: Instant, after: WaitingKeysRow | None, limit: int
    ) -> list[WaitingKeysRow]:
        last = (Instant(-1), "") if after is None else (after.look_at, after.keys)
        asked = {"agent": agent, "apps": list(apps), "now": now, "limit": limit}
        found = self._ask_steps("lock_waiting_keys", **asked, after_at=last[0], after_keys=last[1])
        return [WaitingKeysRow(*row) for row in found]

    def select_waiting_keys(self, agent: str, apps: Sequence[str], after: str, limit: int) -> list[str]:
        asked = {"agent": agent, "apps": list(apps), "after": after, "limit": limit}
        return [keys for (keys,) in self._ask_steps("select_waiting_keys", **asked)]

    def select_next_key_look(self, agent: str, apps: Sequence[str], now: Instant) -> Instant | None:
        ((look_at,),) = self._ask_steps("select_next_key_look", agent=agent, apps=list(apps), now=now)
        return None if look_at is None else Instant(look_at)

    def select_first_due(self, agent: str, apps: Sequence[str], keys: Sequence[str]) -> dict[tuple[str, str], Instant]:
        found = self._ask_steps("select_first_due", agent=agent, apps=list(apps), keys=list(keys))
        return {(app, of): Instant(at) for app, of, at in found if at is not None}

    def note_waiting_keys(self, steps: Iterable[StepRow]) -> None:
        """Keep the keys under which these steps wait, with the first instant at which one of them is due."""
        if rows := list_waiting_keys(steps):
            self.add_waiting_keys(rows)

    def add_waiting_keys(self, rows: Sequence[WaitingKeysRow]) -> None:
        self._send_waiting_keys("note_waiting_keys", rows)

    def select_missing_keys(self, limit: int) -> list[WaitingKeysRow]:
        return [WaitingKeysRow(*row) for row in self.ask("select_missing_keys", {"limit": limit}).fetchall()]

    def _send_waiting_keys(self, name: str, rows: Sequence[WaitingKeysRow]) -> None:
        self.ask_of_agents(name, put_in_columns(rows))

    def move_waiting_keys(self, rows: Sequence[WaitingKeysRow]) -> None:
        self._send_waiting_keys("move_waiting_keys", rows)

    def remove_waiting_keys(self, rows: Sequence[WaitingKeysRow]) -> None:
        if rows:
            self._send_waiting_keys("remove_waiting_keys", rows)

    def wake_waiting_keys(self, app: str, agent: str, now: Instant) -> None:
        self.ask_of_agents("wake_waiting_keys", {"app": app, "agent": agent, "now": now})

    def lock_old_waiting_keys(self, before: Instant, limit: int) -> list[WaitingKeysRow]:
        found = self.ask("lock_old_waiting_keys", {"before": before, "limit": limit}).fetchall()
        return [WaitingKeysRow(*row) for row in found]

    def select_rates(self, app: str, agent: str, names: Sequence[str], keys: Sequence[str]) -> list[RateRow]:
        asked = {"app": app, "agent": agent, "names": list(names), "keys": list(keys)}
        found = self.ask_of_agents("select_rates", asked)
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
