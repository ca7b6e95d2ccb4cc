"""Chooses the Agent of a new request among those that provide its step. The rule is ``core.routing``.

What this process knows of others is as old as its last renewal, and of breakers as its last Take. Both are hints. The store
decides when a request is taken, and lets another Agent take over what its own cannot.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence

from ..core.breaker import close_after_ramp, grant_canary, is_barred
from ..core.routing import (
    HEALTH_MIN,
    AgentReport,
    Candidate,
    SurveyedAgent,
    choose_agent,
    compute_health,
    is_to_be_routed,
    route,
    survey_hosts,
)
from ..declare.providers import Groups
from ..declare.steps import Agent
from ..model import Instant
from ..model.agents import BreakerKey, BreakerRow, BreakerState
from ..model.moves import NewStep
from ..model.processes import ProcessRow
from .hosted_agent import HostedAgent
from .process_context import ProcessContext

SIBLING_SECONDS = 0.5  # between looks for requests of the siblings of the Agents here


class AgentRouter:
    """Chooses the Agent of each new request.

    Args:
        hosted: the Agents of this process.
        groups: Agents that serve the same calls; of most Apps there are none.
        others: the other processes as of the last renewal.
    """

    def __init__(
        self,
        context: ProcessContext,
        hosted: Mapping[str, HostedAgent],
        groups: Groups,
        others: Callable[[], Sequence[ProcessRow]],
    ) -> None:
        self._hosted = hosted
        self.groups = groups
        self._app = context.app
        self._others = others
        self._now = context.store.now
        self._monotonic = context.clock.monotonic
        self._turns: dict[str, dict[str, float]] = {}  # by base
        self._seen: Sequence[ProcessRow] = ()
        self._elsewhere: dict[str, SurveyedAgent] = {}  # hosted by the others, as of ``_seen``
        self._canaries: dict[
            BreakerKey, tuple[BreakerRow, BreakerRow]
        ] = {}  # as it is known, and with canaries sent since
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
            self._elsewhere = survey_hosts(others, now, self._app)

    def _build_candidate(self, agent: Agent, new: NewStep, priority: int, now: Instant) -> Candidate:
        name, hosted = agent.name, self._hosted.get(agent.name)
        elsewhere = self._elsewhere.get(name)
        is_elsewhere = elsewhere is not None and new.name in elsewhere.steps
        has_room_elsewhere = is_elsewhere and elsewhere is not None and elsewhere.has_room
        if hosted is None or not hosted.is_taking or new.name in hosted.without_url:
            # Its breaker may not be known here: it gets a few requests, and the store lets others take over what it bars.
            health = HEALTH_MIN if elsewhere is None or elsewhere.is_barred else elsewhere.health
            return Candidate(
                name=name,
                weight=agent.weight,
                preference=agent.preference,
                health=health,
                has_room=has_room_elsewhere,
                is_hosted=is_elsewhere,
            )
        may_go = self._may_call(hosted, new.target, now)
        return Candidate(
            name=name,
            weight=agent.weight,
            preference=agent.preference,
            health=self._measure_health(hosted, new.target, now),
            has_room=has_room_elsewhere or hosted.may_reserve(priority),
            is_barred=may_go is False,
            awaits_canary=may_go is True,
        )

    # --- breakers
    def _may_call(self, hosted: HostedAgent, target: str, now: Instant) -> bool | None:
        """Returns None if the breaker is closed as far as is known; else if one attempt may go now."""
        whole = hosted.breakers.find_whole(self._app)
        row = hosted.breakers.known.get((self._app, hosted.name, target))
        if row is None and (whole is None or not whole.keeps_all):
            return None
        hosted.look_at_breaker()
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
        row = self._hosted[key[1]].breakers.known[key]
        after = close_after_ramp(self._with_canaries(row), now)
        granted = None if after.state is BreakerState.CLOSED else grant_canary(after, now)
        if granted is not None:
            self._canaries[key] = (row, granted)

    # --- health
    def _measure_health(self, hosted: HostedAgent, target: str, now: Instant) -> float:
        window = hosted.breakers.windows.get((self._app, hosted.name, target))
        if window is None:
            return 1.0
        calls, failed = window.count_ended(now)
        return compute_health(calls, failed, hosted.agent.breaker)

    def report_room(self) -> dict[str, AgentReport]:
        """Report the Agents of this process, as others see them. Called from the thread that renews the lease."""
        routed = {name for names in self.providers.values() for name in names}
        return {name: hosted.report_room(is_routed=name in routed) for name, hosted in self._hosted.items()}
