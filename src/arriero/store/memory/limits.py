"""Limits of Agents in dicts."""

from collections import Counter
from collections.abc import Sequence

from ...limits import AgentLimitsRow, RateRow
from ...model import Instant, StepKind, StepRow, StepState
from .tables import MemoryConvoys


class MemoryLimits(MemoryConvoys):
    """``store.engine.limits.LimitEngineRows``."""

    def __init__(self) -> None:
        super().__init__()
        self.limit_rows: dict[tuple[str, str], AgentLimitsRow] = {}  # by App, Agent
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

    def select_waiting_keys(self, agent: str, own: str, after: str, limit: int) -> list[str]:
        waiting = self._steps_of_agent(agent, ("", own), StepState.PENDING)
        found = {step.limit_keys for step in waiting if step.limit_keys is not None and step.limit_keys > after}
        return sorted(found)[:limit]

    def select_rates(self, app: str, agent: str, keys: Sequence[str]) -> list[RateRow]:
        found = [r for (of, name, _, key), r in self.rate_rows.items() if (of, name) == (app, agent) and key in keys]
        return [self._quarantine.read_shared(row) for row in found]

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
