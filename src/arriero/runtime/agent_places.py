"""The places of Agents in one process: how many are free, which work gets one, and for whom requests wait in the store."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol

import msgspec

from ..answers import Dispatch
from ..core.reserve import Room, compute_room, is_urgent
from ..declare.steps import Agent
from ..model import Instant
from .adaptive_places import AdaptivePlaces
from .breakers import Breakers
from .limited_agents import LimitedAgents


class ReservedRoom(msgspec.Struct, frozen=True):
    """Places of one Agent that are kept for a Take under way, and that no other work may use meanwhile."""

    agent: str
    room: Room

    @property
    def places(self) -> int:
        """All of them."""
        return self.room.open + self.room.urgent


class RemoteDemand(Protocol):
    """Demand of programs outside of Python for work of this process. ``last_polls``: instants of their last polls, by Agent."""

    last_polls: dict[str, Instant]

    def count_wanted(self, agent: str) -> int: ...


class AgentPlaces:
    """Places of the Agents of one process.

    Args:
        agents: those of this process.
        is_trusted: returns True if this process may still trust its lease.
        take_soon: asks the store for requests.
        demand: what programs outside of Python ask for; None: nobody asks, and their Agents have places as others have.
    """

    def __init__(
        self,
        agents: Mapping[str, Agent],
        *,
        app: str,
        adaptive: AdaptivePlaces,
        breakers: Breakers,
        limits: LimitedAgents,
        is_trusted: Callable[[], bool],
        take_soon: Callable[[], None],
        demand: RemoteDemand | None = None,
    ) -> None:
        self.agents = agents
        self._demand = demand
        self._pulled = {name for name, agent in agents.items() if demand and agent.is_pulled}
        self._app = app
        self._adaptive = adaptive
        self.breakers = breakers
        self.limits = limits
        self._is_trusted = is_trusted
        self._take_soon = take_soon
        self.used: Counter[str] = Counter()
        self.used_by_others: Counter[str] = Counter()  # of these, by work that is not urgent
        self.ready_retries: Counter[str] = Counter()  # that have waited, and get their place before new work does
        self.backlog: set[str] = set()  # Agents for which requests may wait in the store: those go first
        self.is_taking = True  # until the process drains

    def stop_taking(self) -> None:
        """Begin to drain: no place is given to new work any more."""
        self.is_taking = False

    # --- free places
    def count_free(self, agent: str) -> int:
        """Count the places of a local Agent that a request of any priority could take."""
        return self.compute_room(agent).open

    def count_places(self, agent: str) -> int:
        """Count all places of a local Agent."""
        hosted = self.agents[agent]
        places = self._adaptive.count_places(hosted) if hosted.adaptive else hosted.max_in_flight
        if agent in self._pulled and self._demand is not None:
            return min(places, self._demand.count_wanted(agent))
        return places

    def find_last_poll(self, agent: str) -> Instant:
        """Find when a program outside of Python asked last for requests of an Agent here; 0: none has."""
        return Instant(0) if self._demand is None else self._demand.last_polls.get(agent, Instant(0))

    def compute_room(self, agent: str, *, of_retry: bool = False) -> Room:
        """Compute the free places for new work. ``of_retry``: for a retry that waits, which gets its place before that."""
        hosted, places = self.agents[agent], self.count_places(agent)
        room = compute_room(
            places=places,
            reserved=min(hosted.reserved, max(places - 1, 0)),
            used=self.used[agent],
            used_by_others=self.used_by_others[agent],
        )
        kept = 0 if of_retry else self.ready_retries[agent]
        return Room(max(room.open - kept, 0), room.urgent) if kept else room

    # --- taking a place
    def reserve(self, agent: str, priority: int, target: str = "") -> bool:
        """Take a place of a local Agent for a new request. Returns False if the request must wait in the store."""
        if self.breakers.known and self.breakers.is_barred(self._app, agent, target):
            return False  # it is taken from the store, by whoever the breaker lets through
        if agent in self.limits.names:
            self.backlog.add(agent)
            self.limits.take_with_this_commit(agent)
            return False
        if not self.may_reserve(agent, priority):
            self.backlog.add(agent)
            return False
        if not self._is_trusted():
            return False
        self.use(agent, priority)
        return True

    def may_reserve(self, agent: str, priority: int) -> bool:
        """Returns True if a local Agent has a place for a new request, and none waits before it."""
        if agent not in self.agents or not self.is_taking or agent in self.backlog:
            return False
        room = self.compute_room(agent)
        return room.open > 0 or (room.urgent > 0 and is_urgent(priority))

    def reserve_for_retry(self, agent: str, priority: int) -> bool:
        """Take a place for a retry that has waited without one. Returns False if none is free."""
        room = self.compute_room(agent, of_retry=True)
        is_free = room.open > 0 or (room.urgent > 0 and is_urgent(priority))
        if is_free:
            self.use(agent, priority)
        return is_free

    def use(self, agent: str, priority: int) -> None:
        """Count a place as used, also if none is free: the store has recorded its attempt as ours."""
        self.used[agent] += 1
        if not is_urgent(priority):
            self.used_by_others[agent] += 1

    # --- giving it back
    def give_back(self, agent: str, priority: int) -> None:
        """Free a place that was reserved, or whose attempt has ended."""
        self.used[agent] -= 1
        if not is_urgent(priority):
            self.used_by_others[agent] -= 1
        if agent in self.backlog:
            if agent in self.limits.names:
                self.limits.take_with_this_commit(agent)
            else:
                self._take_soon()

    def give_back_all(self, agents: Iterable[str], priority: int) -> None:
        """Free places that were reserved for requests that do not begin."""
        for agent in agents:
            self.give_back(agent, priority)

    def give_back_unused(self, reserved: Sequence[str], dispatches: Sequence[Dispatch], priority: int) -> None:
        """Free those of the reserved places for which no attempt began. Their requests wait in the store."""
        unused = Counter(reserved) - Counter(dispatch.step.agent for dispatch in dispatches)
        self.give_back_all(unused.elements(), priority)
        for agent in unused:
            self.note_waiting(agent)

    # --- places kept for a Take
    def keep(self, asked: Iterable[ReservedRoom]) -> None:
        """Keep free places for what a Take may bring."""
        for one in asked:
            self.used[one.agent] += one.places
            self.used_by_others[one.agent] += one.room.open

    def free(self, asked: Iterable[ReservedRoom]) -> None:
        """Free places that were kept for a Take."""
        for one in asked:
            self.used[one.agent] -= one.places
            self.used_by_others[one.agent] -= one.room.open

    # --- requests that wait in the store
    def note_waiting(self, agent: str) -> None:
        """Note that a request for an Agent waits in the store: a Take that was sent before may have missed it."""
        if agent in self.agents:
            self.backlog.add(agent)
            self.limits.note_news(agent)
            self._take_soon()

    def note_due(self) -> None:
        """Note that requests are due in the store, for any Agent."""
        self.backlog.update(self.agents)
        self._take_soon()

    # --- for the simulator and tests
    def count_leaked(self, priorities: Sequence[int], asked: Sequence[ReservedRoom]) -> int:
        """Count places in use that belong to nobody.

        Args:
            priorities: of the attempts under way that have a place.
            asked: kept for the Take under way.
        """
        leaked = self.used.total() - sum(one.places for one in asked) - len(priorities)
        others = self.used_by_others.total() - sum(one.room.open for one in asked)
        return max(leaked, abs(others - sum(not is_urgent(priority) for priority in priorities)))
