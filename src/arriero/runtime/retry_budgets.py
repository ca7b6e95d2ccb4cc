"""Retry budget of one Agent in one process: it grants retries and makes the others wait. The rule is ``core.capacity``."""

import logging
from collections.abc import Callable, Iterable

from ..core.capacity import (
    BURST,
    PER_SECOND,
    RetryBudget,
    add_calls,
    count_allowed_retries,
    give_back,
    seconds_until_allowed,
    spend,
)
from ..core.routing import HeldRetries
from ..declare.steps import Agent
from ..model import StepRow
from .ports import ProcessClock

logger = logging.getLogger("arriero")
LOOK_SECONDS = 0.1  # between looks of a retry that waits: a call of another attempt may have brought its token
TOLD_EVERY = 60.0  # seconds between lines of the log about one Agent


class AgentRetries:
    """Retry budget of an Agent. Without one, every retry may be made.

    Args:
        on_allowed: called when a later attempt may be taken that a Take has left in the store.
    """

    def __init__(self, agent: Agent, clock: ProcessClock, on_allowed: Callable[[], None]) -> None:
        self._agent = agent.name
        self._clock = clock
        self._on_allowed = on_allowed
        share = agent.retry_budget
        self._budget = None if share is None else RetryBudget(share, clock.monotonic())
        self._calls = 0  # that have begun, and are not in the budget yet
        self._kept = 0  # tokens that are kept for the Take running
        self._is_limited = False  # fewer tokens than places were left for that Take
        self._has_timer = False  # a Take follows once a retry is allowed
        self._told_at = float("-inf")  # monotonic

    def note_call(self) -> None:
        """Note that a call begins, the first one of its step or a retry."""
        self._calls += 1

    def _update(self, now: float) -> RetryBudget | None:
        """Return the budget with all calls that have begun by now. None: there is no limit."""
        if self._budget is not None and self._calls:
            self._budget = add_calls(self._budget, self._calls, now)
            self._calls = 0
        return self._budget

    def keep_for_take(self, wanted: int) -> int | None:
        """Keep tokens for the later attempts among the requests that a Take asks for.

        Returns: how many of the requests may be later attempts; None: all of them.
        """
        now = self._clock.monotonic()
        if (budget := self._update(now)) is None:
            return None
        count = min(wanted, count_allowed_retries(budget, now))
        self._budget = spend(budget, count, now)
        self._kept += count
        self._is_limited = count < wanted
        return count

    def settle_take(self, steps: Iterable[StepRow]) -> None:
        """Give back what the Take running has not used. ``steps``: what it brought; a canary uses none."""
        if self._budget is not None:
            used = sum(1 for step in steps if step.agent == self._agent and step.fence > 1 and not step.is_canary)
            if self._kept > used:  # the fence counts takes
                self._budget = give_back(self._budget, self._kept - used, self._clock.monotonic())
            elif self._is_limited:
                self._take_later()  # more may wait
                if self._kept:
                    self.tell()
        self.lose_take()

    def lose_take(self) -> None:
        """Count what was kept for a Take as used: its answer was lost."""
        self._kept, self._is_limited = 0, False

    def _take_later(self) -> None:
        if self._has_timer:
            return

        def note() -> None:
            self._has_timer = False
            self._on_allowed()

        self._has_timer = True
        now = self._clock.monotonic()
        budget = self._update(now)
        assert budget is not None  # only a budget limits
        self._clock.call_later(
            max(seconds_until_allowed(budget, now), LOOK_SECONDS), note
        )  # not immediately, again and again

    def report_held(self, tries: int) -> HeldRetries | None:
        """Report what the budget holds back now. ``tries``: that wait for a token. None: it holds nothing back."""
        leaves_attempts = self._has_timer or (self._is_limited and not self._kept)
        if self._budget is None or not (leaves_attempts or tries):
            return None
        return HeldRetries(self._budget.share, leaves_attempts, tries)

    def may_retry(self) -> bool:
        """Take a token for a retry. Returns False if it must wait."""
        now = self._clock.monotonic()
        budget = self._update(now)
        if budget is None:
            return True
        if count_allowed_retries(budget, now) < 1:
            return False
        self._budget = spend(budget, 1, now)
        return True

    def give_back(self) -> None:
        """Give back the token of a retry that is not made."""
        if self._budget is not None:
            self._budget = give_back(self._budget, 1, self._clock.monotonic())

    def tell(self) -> None:
        """Log that retries wait, now and then."""
        now = self._clock.monotonic()
        if self._budget is None or now < self._told_at + TOLD_EVERY:
            return
        self._told_at = now
        logger.warning(
            "%s",
            f"retries of Agent {self._agent} are held to its retry budget: {self._budget.share:.0%} of its calls in this process,"
            f" {BURST:g} immediately and {PER_SECOND:g} a second more; those beyond it wait, and spend nothing; find out why"
            f" many calls fail, or raise Agent({self._agent!r}, retry_budget=...)",
        )
