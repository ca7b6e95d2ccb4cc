"""Retry budgets of the Agents of one process: they grant retries and make the others wait.

A retry that must wait holds no place of its Agent: its place goes to requests that make a call now. If it kept it, the
retries of a service that fails often would fill all places, and then nothing would make the calls that allow retries.
"""

import logging
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Protocol

from ..core.retry_budget import (
    BURST,
    PER_SECOND,
    RetryBudget,
    add_calls,
    count_allowed_retries,
    give_back,
    seconds_until_allowed,
    spend,
)
from ..declare.steps import Agent
from ..model import StepRow
from .ports import ProcessClock

logger = logging.getLogger("arriero")
LOOK_SECONDS = 0.1  # between looks of a retry that waits: a call of another attempt may have brought its token
TOLD_EVERY = 60.0  # seconds between lines of the log about one Agent
TOLD_AFTER_SECONDS = 1.0  # of waiting: a shorter wait is over before somebody has read of it


REPORT_SECONDS = 0.5  # before the end of an attempt: its last failure is reported then, and not lost as an expiry
WAKES_PER_SECOND_MAX = 50.0  # of all tries of an Agent that wait: more would keep the event loop busy for nothing


class Places(Protocol):
    """The places of Agents, as a retry that waits gives its own back and asks for one again.

    ``ready_retries``: by Agent, those that have their token and want a place before others do.
    """

    ready_retries: Counter[str]

    def give_back(self, agent: str, priority: int) -> None: ...
    def reserve_for_retry(self, agent: str, priority: int) -> bool: ...
    def note_waiting(self, agent: str) -> None: ...


class RetryBudgets:
    """Retry budgets of the Agents of one process. An Agent without a budget is not in it."""

    def __init__(self, agents: Iterable[Agent], clock: ProcessClock, places: Places) -> None:
        self._clock = clock
        self._places = places
        self._timers: set[str] = set()  # Agents for which a Take follows once a retry is allowed
        self._told_at: dict[str, float] = {}  # by Agent, monotonic
        now = clock.monotonic()
        self._budgets = {a.name: RetryBudget(a.retry_budget, now) for a in agents if a.retry_budget is not None}
        self._calls: Counter[str] = Counter()  # that have begun, and are not in the budgets yet
        self._kept: Counter[str] = Counter()  # tokens that are kept for the Take under way
        self._limited: set[str] = set()  # Agents of that Take for which fewer tokens than places were left
        self._waiting: Counter[str] = Counter()  # retries without a place, by Agent

    def note_call(self, agent: str) -> None:
        """Note that a call begins, the first one of its step or a retry."""
        self._calls[agent] += 1

    def _find_budget(self, agent: str, now: float) -> RetryBudget | None:
        """Find the budget of an Agent with all calls that have begun by now; None: it has none."""
        budget = self._budgets.get(agent)
        if budget is not None and (calls := self._calls.pop(agent, 0)):
            budget = self._budgets[agent] = add_calls(budget, calls, now)
        return budget

    def keep_for_take(self, places: Iterable[tuple[str, int]]) -> tuple[tuple[str, int], ...]:
        """Keep tokens for later attempts that a Take may bring.

        Args:
            places: Agents, and how many requests are asked for.
        Returns: for each Agent with a budget, how many of the requests may be later attempts.
        """
        kept: list[tuple[str, int]] = []
        now = self._clock.monotonic()
        for agent, wanted in places:
            if (budget := self._find_budget(agent, now)) is None:
                continue
            count = min(wanted, count_allowed_retries(budget, now))
            self._budgets[agent] = spend(budget, count, now)
            self._kept[agent] += count
            kept.append((agent, count))
            if count < wanted:
                self._limited.add(agent)
        return tuple(kept)

    def _take_later(self, agent: str) -> None:
        if agent in self._timers:
            return

        def note() -> None:
            self._timers.discard(agent)
            self._places.note_waiting(agent)  # a later attempt, if one waits, may be taken now

        self._timers.add(agent)
        now = self._clock.monotonic()
        budget = self._find_budget(agent, now)
        assert budget is not None  # only Agents with a budget are limited
        seconds = seconds_until_allowed(budget, now)
        self._clock.call_later(max(seconds, LOOK_SECONDS), note)  # never at once, again and again

    def settle_take(self, steps: Iterable[StepRow]) -> None:
        """Give back what the Take under way has not used. ``steps``: what it brought; a canary uses none."""
        used = Counter(step.agent for step in steps if step.fence > 1 and not step.is_canary)  # the fence counts takes
        now = self._clock.monotonic()
        for agent, count in self._kept.items():
            if count > used[agent]:
                self._budgets[agent] = give_back(self._budgets[agent], count - used[agent], now)
            elif agent in self._limited:
                self._take_later(agent)  # more may wait
                if count:
                    self._tell(agent)
        self.lose_take()

    def lose_take(self) -> None:
        """Count what was kept for a Take as used: its answer was lost."""
        self._kept.clear()
        self._limited.clear()

    def may_retry(self, agent: str) -> bool:
        """Take a token for a retry. Returns False if it must wait."""
        now = self._clock.monotonic()
        budget = self._find_budget(agent, now)
        if budget is None:
            return True
        if count_allowed_retries(budget, now) < 1:
            return False
        self._budgets[agent] = spend(budget, 1, now)
        return True

    async def wait(
        self,
        agent: str,
        priority: int,
        *,
        remaining: Callable[[], float],
        is_barred: Callable[[], bool],
    ) -> bool:
        """Wait, without a place, until a retry may be made and has a place again.

        Args:
            remaining: seconds that its attempt has left.
            is_barred: True once a breaker lets nothing through as always: then the retry is not made.
        Returns: False if no retry is made. It has no place then.
        """
        places, began, has_token, is_over = self._places, self._clock.monotonic(), False, False
        places.give_back(agent, priority)
        self._waiting[agent] += 1
        try:
            while (left := remaining() - REPORT_SECONDS) > 0 and not is_barred():
                if not has_token and (has_token := self.may_retry(agent)):
                    places.ready_retries[agent] += 1
                if has_token and (is_over := places.reserve_for_retry(agent, priority)):
                    break
                if not has_token and self._clock.monotonic() >= began + TOLD_AFTER_SECONDS:
                    self._tell(agent)
                await self._clock.sleep(min(max(LOOK_SECONDS, self._waiting[agent] / WAKES_PER_SECOND_MAX), left))
            return is_over
        finally:
            self._waiting[agent] -= 1
            if has_token:
                places.ready_retries[agent] -= 1
            if has_token and not is_over:
                self._budgets[agent] = give_back(self._budgets[agent], 1, self._clock.monotonic())

    def _tell(self, agent: str) -> None:
        now = self._clock.monotonic()
        if now < self._told_at.get(agent, -TOLD_EVERY) + TOLD_EVERY:
            return
        self._told_at[agent] = now
        share = self._budgets[agent].share
        logger.warning(
            "%s",
            f"retries of Agent {agent} are held to its retry budget: {share:.0%} of its calls in this process, {BURST:g} at once and"
            f" {PER_SECOND:g} a second besides; those beyond it wait, and spend nothing; find out why so many calls fail, or"
            f" raise Agent({agent!r}, retry_budget=...)",
        )
