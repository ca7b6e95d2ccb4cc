"""Agents with limits as one process knows them: their attempts begin with a Take alone, and when the next Take is worth it.

What is known here saves commands. The store decides in the Take.
"""

import asyncio
from collections.abc import Callable, Iterable

from ..answers import LimitedAgent
from ..declare.steps import Agent
from .ports import ProcessClock, Timer

# Between Takes of an Agent whose room is used up, unless this process frees a slot. Other processes take for the slots that
# they free. Only what a process leaves behind that ends or drains waits so long.
USED_UP_SECONDS = 0.5


class LimitedAgents:
    """Agents with limits, as this process knows them.

    Args:
        take_soon: asks the store for requests.
    """

    def __init__(self, agents: Iterable[Agent], clock: ProcessClock, take_soon: Callable[[], None]) -> None:
        limited = [agent for agent in agents if agent.limits]
        self.names = {agent.name for agent in limited}
        self._with_rate = {a.name for a in limited if any(limit.policy.kind == "rate" for limit in a.limits)}
        self._clock = clock
        self._take_soon = take_soon
        self._called: set[str] = set()  # Agents to ask for in the next turn of the event loop
        self._news: set[str] = set()  # Agents with a new request or a free slot since the last Take was sent
        self._used_up_until: dict[str, float] = {}  # by Agent, monotonic
        self._timer: Timer | None = None  # until a rate lets the next call through
        self._timer_at = 0.0  # monotonic

    def has_rate(self, agent: str) -> bool:
        """Returns True if each further try of an attempt asks the store, because a rate counts it."""
        return agent in self._with_rate

    def may_ask(self, agent: str) -> bool:
        """Returns False if a Take would find nothing: the last one found all room in use, and none has become free here.

        A Take locks the limits, so those in vain would make all others wait.
        """
        return agent in self._news or self._clock.monotonic() >= self._used_up_until.get(agent, 0.0)

    def note_news(self, agent: str) -> None:
        """Note that the next Take is worth it: there is a new request, or a free slot. One that was sent may miss it."""
        self._news.add(agent)

    def note_asked(self, agent: str) -> None:
        """Note that a Take is sent that will find all that is known here."""
        self._news.discard(agent)

    def take_with_this_commit(self, agent: str) -> None:
        """Ask for requests in the commit that opens one, or that reports the end of an attempt.

        What is put within one turn of the event loop is written with one commit. The Take stands behind it, so it finds the
        new request and the free slot.
        """
        if not self._called:
            asyncio.get_running_loop().call_soon(self._call)
        self._called.add(agent)

    def _call(self) -> None:
        self._news |= self._called
        self._called.clear()
        self._take_soon()

    def learn(self, asked: Iterable[str], limited: Iterable[LimitedAgent]) -> frozenset[str]:
        """Take in what a Take has found. Returns the Agents whose limits hold requests back."""
        found = {one.agent: one for one in limited}
        asked = frozenset(asked)
        self.names.difference_update(asked)
        self.names.update(found)
        self._with_rate.difference_update(asked)
        self._with_rate.update(one.agent for one in found.values() if one.has_rate)
        until = self._clock.monotonic() + USED_UP_SECONDS
        for agent in asked:
            self._used_up_until.pop(agent, None)
        self._used_up_until.update({one.agent: until for one in found.values() if one.is_full and one.is_used_up})
        waits = [one.next_in for one in found.values() if one.is_full and one.next_in is not None]
        if waits:
            self._take_later(min(waits))
        return frozenset(one.agent for one in found.values() if one.is_full)

    def _take_later(self, seconds: float) -> None:
        at = self._clock.monotonic() + seconds
        if self._timer is not None:
            if self._timer_at <= at:
                return
            self._timer.cancel()
        self._timer_at = at
        self._timer = self._clock.call_later(seconds, self._end_wait)

    def _end_wait(self) -> None:
        self._timer = None
        self._news |= self.names
        self._take_soon()
