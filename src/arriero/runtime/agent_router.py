"""Chooses the Agent of a new request among those that provide its step. The rule is ``core.routing``.

What this process knows of others is as old as its last renewal, and of breakers as its last Take. Both are hints. The store
decides when a request is taken, and lets another Agent take over what its own cannot.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol

from ..breakers import BreakerKey, BreakerRow, BreakerState
from ..commands import NewStep
from ..core.breaker import close_after_ramp, grant_canary, is_barred
from ..core.room_reports import AgentReport, HostedAgent, survey_hosts
from ..core.routing import HEALTH_MIN, Candidate, choose_agent, compute_health, is_to_be_routed, route
from ..declare.providers import Groups
from ..declare.steps import Agent
from ..model import Instant
from ..processes import ProcessRow
from .breakers import LOOK_SECONDS, Breakers

SIBLING_SECONDS = 0.5  # between looks for requests of the siblings of the Agents here


class RoutedPlaces(Protocol):
    """The places of the Agents of this process, as the router sees them."""

    agents: Mapping[str, Agent]
    breakers: Breakers
    is_taking: bool

    def count_free(self, agent: str) -> int: ...
    def count_places(self, agent: str) -> int: ...
    def find_last_poll(self, agent: str) -> Instant: ...
    def may_reserve(self, agent: str, priority: int) -> bool: ...
    def note_waiting(self, agent: str) -> None: ...


class AgentRouter:
    """Chooses the Agent of each new request.

    Args:
        groups: Agents that serve the same calls; of most Apps there are none.
        others: the other processes as of the last renewal.
        now: the store's clock.
        monotonic: this process's clock.
    """

    def __init__(
        self,
        places: RoutedPlaces,
        groups: Groups,
        app: str,
        *,
        others: Callable[[], Sequence[ProcessRow]],
        now: Callable[[], Instant],
        monotonic: Callable[[], float],
    ) -> None:
        self._places = places
        self.groups = groups
        self._app = app
        self._others = others
        self._now = now
        self._monotonic = monotonic
        self._turns: dict[str, dict[str, float]] = {}  # by base
        self._seen: Sequence[ProcessRow] = ()
        self._hosted: dict[str, HostedAgent] = {}  # by the others, as of ``_seen``
        self._canaries: dict[
            BreakerKey, tuple[BreakerRow, BreakerRow]
        ] = {}  # as it is known, and with canaries sent since
        self._looked_at: dict[str, float] = {}
        self._siblings_asked_at = float("-inf")
        self.providers = {base: tuple(agent.name for agent in group) for base, group in groups.items()}

    def list_siblings(self, agents: Iterable[str]) -> dict[str, tuple[str, ...]]:
        """List for each of these Agents the others that do the same steps. An Agent without any is left out."""
        wanted = set(agents)
        return {
            name: tuple(other for other in names if other != name)
            for names in self.providers.values()
            for name in names
            if name in wanted
        }

    def add_siblings(self, agents: tuple[str, ...]) -> tuple[str, ...]:
        """Add to the Agents of this process those whose requests they may take over, but only once in a while.

        A request that may not move would else cause a Take at each poll, which brings nothing.
        """
        at = self._monotonic()
        if at < self._siblings_asked_at + SIBLING_SECONDS:
            return agents
        self._siblings_asked_at = at
        siblings = [name for names in self.list_siblings(agents).values() for name in names]
        return tuple(dict.fromkeys((*agents, *siblings)))

    def route(self, new: NewStep, priority: int) -> NewStep:
        """Choose the Agent of a request that names a base with providers."""
        if not is_to_be_routed(new):
            return new
        base, now = new.agent, self._now()
        self._look_at_others(now)
        candidates = [self._build_candidate(agent, new, priority, now) for agent in self.groups[base]]
        name, self._turns[base] = choose_agent(candidates, self._turns.get(base, {}))
        chosen = next(one for one in candidates if one.name == name)
        if chosen.awaits_canary:
            self._count_canary((self._app, name, new.target), now)
        return route(new, name)

    def _look_at_others(self, now: Instant) -> None:
        others = self._others()
        if others is not self._seen:
            self._seen = others
            self._hosted = survey_hosts(others, now, self._app)

    def _build_candidate(self, agent: Agent, new: NewStep, priority: int, now: Instant) -> Candidate:
        name, places = agent.name, self._places
        elsewhere = self._hosted.get(name)
        is_elsewhere = elsewhere is not None and new.name in elsewhere.steps
        has_room_elsewhere = is_elsewhere and elsewhere is not None and elsewhere.has_room
        if name not in places.agents or not places.is_taking:
            # Its breaker is not known here: it gets a few requests, and the store lets others take over what it bars.
            health = HEALTH_MIN if elsewhere is None or elsewhere.is_barred else elsewhere.health
            return Candidate(
                name=name,
                weight=agent.weight,
                preference=agent.preference,
                health=health,
                has_room=has_room_elsewhere,
                is_hosted=is_elsewhere,
            )
        may_go = self._may_call(name, new.target, now)
        return Candidate(
            name=name,
            weight=agent.weight,
            preference=agent.preference,
            health=self._measure_health(agent, new.target, now),
            has_room=has_room_elsewhere or places.may_reserve(name, priority),
            is_barred=may_go is False,
            awaits_canary=may_go is True,
        )

    # --- breakers
    def _may_call(self, agent: str, target: str, now: Instant) -> bool | None:
        """Returns None if the breaker is closed as far as is known; else if one attempt may go now."""
        known = self._places.breakers.known
        whole = known.get((self._app, agent, ""))
        row = known.get((self._app, agent, target))
        if row is None and (whole is None or not whole.keeps_all):
            return None
        self._look_again(agent)
        if row is None or (whole is not None and whole.keeps_all):
            return False
        sent = self._with_canaries(row)
        if is_barred(sent, now):
            return False
        after = close_after_ramp(sent, now)
        return after.state is BreakerState.CLOSED or grant_canary(after, now) is not None

    def _with_canaries(self, row: BreakerRow) -> BreakerRow:
        """The row as it is known, with the canaries that were sent here since."""
        known, sent = self._canaries.get((row.app, row.agent, row.target), (row, row))
        return sent if known is row else row

    def _count_canary(self, key: BreakerKey, now: Instant) -> None:
        row = self._places.breakers.known[key]
        after = close_after_ramp(self._with_canaries(row), now)
        granted = None if after.state is BreakerState.CLOSED else grant_canary(after, now)
        if granted is not None:
            self._canaries[key] = (row, granted)

    def _look_again(self, agent: str) -> None:
        """Ask the store for requests now and then: with them it tells how the breaker is, and no other request waits."""
        at = self._monotonic()
        if at >= self._looked_at.get(agent, float("-inf")) + LOOK_SECONDS:
            self._looked_at[agent] = at
            self._places.note_waiting(agent)

    # --- health
    def _measure_health(self, agent: Agent, target: str, now: Instant) -> float:
        window = self._places.breakers.windows.get((self._app, agent.name, target))
        if window is None:
            return 1.0
        calls, failed = window.count_ended(now)
        return compute_health(calls, failed, agent.breaker)

    def report_room(self) -> dict[str, AgentReport]:
        """Report the Agents of this process, as others see them. Called from the thread that renews the lease."""
        places = self._places
        barred = {agent for _, agent, target in tuple(places.breakers.known) if not target}
        calls = self._count_calls()
        reports: dict[str, AgentReport] = {}
        for name, agent in places.agents.items():
            free = places.count_free(name) if places.is_taking else 0
            health = round(compute_health(*calls.get(name, (0, 0)), agent.breaker), 2)
            reports[name] = AgentReport(
                free, places.count_places(name), health, name in barred, places.find_last_poll(name)
            )
        return reports

    def _count_calls(self) -> dict[str, tuple[int, int]]:
        """Count the last calls of each Agent that is in a group, and those that failed, over all its targets."""
        counts: dict[str, tuple[int, int]] = {}
        wanted = {name for names in self.providers.values() for name in names}
        now = self._now()
        for (_, agent, _), window in tuple(self._places.breakers.windows.items()) if wanted else ():
            if agent in wanted:
                calls, failed = window.count_ended(now)
                before = counts.get(agent, (0, 0))
                counts[agent] = before[0] + calls, before[1] + failed
        return counts
