"""Circuit breakers of one Agent in one process: counts its calls, asks the store to open breakers, and keeps those that are not closed.

What is known here is a hint that saves commands. The store decides in the commit that takes a request.
"""

import logging
from collections.abc import Iterable
from functools import partial

from ..core.breaker import judge_calls, may_let_through
from ..declare.steps import Agent
from ..model import StepRow
from ..model.agents import BreakerKey, BreakerRow, BreakerState
from ..model.answers import Answer, BreakerApplied, Refusal
from ..model.commands import TripBreaker
from ..model.policies import Breaker
from .call_monitor import CallCounter, CallWindow, EndedCall
from .process_context import ProcessContext

logger = logging.getLogger("arriero")

WINDOWS_KEPT = 1_000  # from then on, those without a call lately are dropped: a target may be one customer of millions
LOOK_SECONDS = 1.0  # between Takes that will bring nothing, as far as is known


class AgentBreakers:
    """Circuit breakers of an Agent and its targets, and the calls that they are judged by, as this process knows them.

    The one who ends a call says so here, once: it is counted for the metrics of the Agent and judged for its breaker.
    """

    def __init__(self, agent: Agent, context: ProcessContext, counter: CallCounter) -> None:
        self._agent = agent
        self._context = context
        self._counter = counter
        self._learned_at = 0.0  # when a Take last reported them, monotonic
        self.windows: dict[BreakerKey, CallWindow] = {}  # a few without calls lately may be left
        self._windows_max = WINDOWS_KEPT
        self.known: dict[BreakerKey, BreakerRow] = {}  # that are not closed, or paused
        self._asked: set[BreakerKey] = set()  # that this process has asked to open, without an answer so far

    def find_whole(self, app: str) -> BreakerRow | None:
        """Find the breaker of the whole Agent. None: it is closed, as far as is known."""
        return self.known.get((app, self._agent.name, ""))

    def is_barred(self, app: str, target: str) -> bool:
        """Returns True if the breaker, or the whole Agent, is known not to let requests through as always."""
        whole = self.find_whole(app)
        return (app, self._agent.name, target) in self.known or (whole is not None and whole.keeps_all)

    def may_ask(self) -> bool:
        """Returns True if a Take for the Agent may bring something, or if it is time to look whether it would.

        A breaker of the whole Agent that lets nothing through is asked again when a canary may go, and now and then,
        because an operator may have closed it.
        """
        row = self.find_whole(self._context.app)
        if row is None or row.state is BreakerState.HALF_OPEN or may_let_through(row, self._context.store.now()):
            return True  # how far the canaries of a wave are is known in the store alone
        return self._context.clock.monotonic() >= self._learned_at + LOOK_SECONDS

    def learn(self, rows: Iterable[BreakerRow]) -> None:
        """Take in the breakers as a Take has found them. ``rows``: of any Agents."""
        self._learned_at = self._context.clock.monotonic()
        found: dict[BreakerKey, BreakerRow] = {}
        for row in rows:
            if row.agent == self._agent.name and (row.state is not BreakerState.CLOSED or row.paused_at is not None):
                found[row.app, row.agent, row.target] = row
        for key in self.known.keys() - found.keys():
            self.windows.pop(key, None)  # they speak of an outage that is over
        self.known.clear()  # not replaced: a probe running writes its finding into it
        self.known.update(found)

    def note_call(self, step: StepRow, call: EndedCall, *, retry_after: float | None, unavailable: bool) -> None:
        """Count a call that has ended, and ask to open the breaker if too many failed."""
        agent, now = self._agent, self._context.store.now()
        self._counter.add(step.agent, call, now)
        policy, key = agent.breaker, (step.app, step.agent, step.target)
        if policy is None:
            return
        window = self.windows.get(key) or self._add_window(key, policy)
        if not window.add(call, now, step.step_no) or step.is_canary or key in self._asked or key in self.known:
            return
        counts = window.count(call.error)
        reason = judge_calls(policy, counts, agent.max_in_flight)
        if unavailable:
            reason = f"the service says that it is unavailable: {call.error}"
        if reason is None:
            return
        self._asked.add(key)
        command = TripBreaker(
            actor=self._context.actor,
            app=step.app,
            agent=step.agent,
            target=step.target,
            policy=agent.breaker_text,
            reason=reason,
            failing_since=counts.since,
            retry_after=retry_after,
            is_one_request=counts.is_one_request,
        )
        self._context.committer.put(command, partial(self._process_answer, key))

    def _add_window(self, key: BreakerKey, policy: Breaker) -> CallWindow:
        if len(self.windows) >= self._windows_max:
            now = self._context.store.now()
            self.windows = {of: window for of, window in self.windows.items() if not window.is_empty(now)}
            self._windows_max = max(WINDOWS_KEPT, 2 * len(self.windows))
        window = self.windows[key] = CallWindow(policy)
        return window

    def count_ended(self) -> tuple[int, int]:
        """Count the last calls over all targets, and those that failed. May be called from another thread."""
        now = self._context.store.now()
        counts = [window.count_ended(now) for window in tuple(self.windows.values())]
        return sum(calls for calls, _ in counts), sum(failed for _, failed in counts)

    def _process_answer(self, key: BreakerKey, answer: Answer | BaseException) -> None:
        self._asked.discard(key)
        if isinstance(answer, BreakerApplied):
            row = answer.breaker
            self.known[key] = row
            self.windows.pop(key, None)
            logger.warning(
                "Agent %s gets no calls from now on: %s; the next canary goes in %g s; see: arriero agent show %s",
                row.label,
                row.reason,
                (row.probe_at or row.changed_at) / 1_000_000 - row.changed_at / 1_000_000,
                row.agent,
            )
        elif isinstance(answer, Refusal):
            self.windows.pop(key, None)  # another process came first, or these calls are of an outage that is over
