"""Limits of Agents in the memory store, and what is in use of them."""

from collections import Counter
from collections.abc import Sequence

from msgspec.structs import replace

from ...core.limits import list_waiting_keys
from ...model import Instant, StepKind, StepRow, StepState
from ...model.agents import AgentLimitsRow, RateRow, WaitingKeysRow
from ..sql.agent_rows import LimitTable
from .tables import MemoryConvoys


class MemoryLimits(MemoryConvoys, LimitTable):
    """Limits, and what is in use of them."""

    def __init__(self) -> None:
        super().__init__()
        self.limit_rows: dict[tuple[str, str], AgentLimitsRow] = {}  # by App, Agent
        self.waiting_keys: dict[tuple[str, str, str], WaitingKeysRow] = {}  # by App, Agent, keys
        self.rate_rows: dict[tuple[str, str, str, str], RateRow] = {}  # by App, Agent, limit, key

    def limits(self, agent: str) -> list[AgentLimitsRow]:
        return [row for row in self.select_all_limits() if row.agent == agent]

    def select_all_limits(self) -> list[AgentLimitsRow]:
        found = [self._quarantine.read_shared(row) for row in self.limit_rows.values() if row.limits != "[]"]
        return sorted(found, key=lambda row: (row.agent, row.app))

    def lock_limits(self, app: str, agents: Sequence[str]) -> list[AgentLimitsRow]:
        found = [self.limit_rows[app, agent] for agent in sorted(agents) if (app, agent) in self.limit_rows]
        return [self._quarantine.read_shared(row) for row in found]

    def put_limits(self, row: AgentLimitsRow) -> None:
        self._put(self.limit_rows, (row.app, row.agent), row)

    def _steps_of_agent(self, agent: str, apps: Sequence[str], state: StepState) -> list[StepRow]:
        steps = (step for of_task in self.steps.values() for step in of_task.values())
        return [
            s for s in steps if s.state is state and s.kind is not StepKind.TIMER and s.agent == agent and s.app in apps
        ]

    def _list_running(self, agent: str, apps: Sequence[str], since: Instant) -> list[StepRow]:
        running = self._steps_of_agent(agent, apps, StepState.RUNNING)
        return [step for step in running if step.complete_by is not None and step.complete_by > since]

    def count_running_keys(self, agent: str, apps: Sequence[str], since: Instant) -> list[tuple[str, int]]:
        running = self._list_running(agent, apps, since)
        return sorted(Counter(step.limit_keys for step in running if step.limit_keys is not None).items())

    def count_running_keyless(self, agent: str, apps: Sequence[str], since: Instant) -> int:
        return sum(step.limit_keys is None for step in self._list_running(agent, apps, since))

    def has_keyless(self, agent: str, apps: Sequence[str]) -> bool:
        waiting = [s for s in self._steps_of_agent(agent, apps, StepState.PENDING) if s.not_before is not None]
        running = self._steps_of_agent(agent, apps, StepState.RUNNING)
        return any(step.limit_keys is None for step in (*waiting, *running))

    # --- keys that wait
    def put_step(self, step: StepRow, *, rewrites: bool = False) -> None:
        super().put_step(step, rewrites=rewrites)
        self._note_waiting_keys(step)

    def add_step(self, step: StepRow) -> None:
        super().add_step(step)
        self._note_waiting_keys(step)

    def _note_waiting_keys(self, step: StepRow) -> None:
        self.add_waiting_keys(list_waiting_keys((step,)))

    def add_waiting_keys(self, rows: Sequence[WaitingKeysRow]) -> None:
        for row in rows:
            known = self.waiting_keys.get((row.app, row.agent, row.keys))
            if known is None or row.look_at < known.look_at:
                self.move_waiting_keys((row,))

    def select_missing_keys(self, limit: int) -> list[WaitingKeysRow]:
        waiting = list_waiting_keys(step for of_task in self.steps.values() for step in of_task.values())
        return [row for row in waiting if (row.app, row.agent, row.keys) not in self.waiting_keys][:limit]

    def _find_waiting_keys(self, agent: str, apps: Sequence[str]) -> list[WaitingKeysRow]:
        found = [row for row in self.waiting_keys.values() if row.agent == agent and row.app in apps]
        return sorted(found, key=lambda row: (row.look_at, row.keys, row.app))

    def lock_waiting_keys(
        self, agent: str, apps: Sequence[str], now: Instant, after: WaitingKeysRow | None, limit: int
    ) -> list[WaitingKeysRow]:
        found = [row for row in self._find_waiting_keys(agent, apps) if row.look_at <= now]
        if after is not None:
            found = [row for row in found if (row.look_at, row.keys) > (after.look_at, after.keys)]
        return found[:limit]

    def select_waiting_keys(self, agent: str, apps: Sequence[str], after: str, limit: int) -> list[str]:
        return sorted({row.keys for row in self._find_waiting_keys(agent, apps) if row.keys > after})[:limit]

    def select_next_key_look(self, agent: str, apps: Sequence[str], now: Instant) -> Instant | None:
        return min((row.look_at for row in self._find_waiting_keys(agent, apps) if row.look_at > now), default=None)

    def select_first_due(self, agent: str, apps: Sequence[str], keys: Sequence[str]) -> dict[tuple[str, str], Instant]:
        rows = list_waiting_keys(self._steps_of_agent(agent, apps, StepState.PENDING))
        return {(row.app, row.keys): row.look_at for row in rows if row.keys in keys}

    def move_waiting_keys(self, rows: Sequence[WaitingKeysRow]) -> None:
        for row in rows:
            self._put(self.waiting_keys, (row.app, row.agent, row.keys), row)

    def remove_waiting_keys(self, rows: Sequence[WaitingKeysRow]) -> None:
        for row in rows:
            self._remove(self.waiting_keys, (row.app, row.agent, row.keys))

    def wake_waiting_keys(self, app: str, agent: str, now: Instant) -> None:
        rows = [row for row in self._find_waiting_keys(agent, (app,)) if row.look_at > now]
        self.move_waiting_keys([replace(row, look_at=now) for row in rows])

    def lock_old_waiting_keys(self, before: Instant, limit: int) -> list[WaitingKeysRow]:
        found = [row for row in self.waiting_keys.values() if row.look_at < before]
        return sorted(found, key=lambda row: row.look_at)[:limit]

    def select_rates(self, app: str, agent: str, names: Sequence[str], keys: Sequence[str]) -> list[RateRow]:
        found = (self.rate_rows.get((app, agent, name, key)) for name in names for key in keys)
        return [self._quarantine.read_shared(rate) for rate in found if rate is not None]

    def select_known_rates(self, app: str, agent: str, now: Instant) -> list[RateRow]:
        found = [
            rate for rate in self.rate_rows.values() if (rate.app, rate.agent) == (app, agent) and rate.until > now
        ]
        return [self._quarantine.read_shared(row) for row in sorted(found, key=lambda rate: (rate.name, rate.key))]

    def put_rate(self, rate: RateRow) -> None:
        self._put(self.rate_rows, (rate.app, rate.agent, rate.name, rate.key), rate)

    def delete_old_rates(self, before: Instant) -> None:
        for key, rate in list(self.rate_rows.items()):
            if rate.until <= before:
                self._remove(self.rate_rows, key)
