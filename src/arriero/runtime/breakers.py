"""Circuit breakers in one process: counts its calls, asks the store to open breakers, and keeps those that are not closed.

Whoever ends a call says so here, once: it is counted for the metrics of its Agent and judged for its breaker.

What is known here is a hint that saves commands. The store decides in the commit that takes a request.
"""

import logging
from collections.abc import Iterable
from functools import partial

from ..answers import Answer, BreakerApplied, Refusal
from ..breakers import BreakerKey, BreakerRow, BreakerState
from ..commands import AnyCommand, TripBreaker
from ..core.breaker import judge_calls, may_let_through
from ..declare.steps import Agent
from ..model import StepRow
from ..policies import Breaker
from ..store.committer import Committer
from ..store.contract import StateStore
from .call_monitor import CallCounter, CallWindow, EndedCall
from .ports import ProcessClock

logger = logging.getLogger("arriero")

WINDOWS_KEPT = 1_000  # from then on, those without a call lately are dropped: a target may be one customer of millions
LOOK_SECONDS = 1.0  # between Takes that will bring nothing, as far as is known


class Breakers:
    """Circuit breakers and call windows, as this process knows them."""

    def __init__(
        self,
        committer: Committer[AnyCommand, Answer],
        store: StateStore,
        clock: ProcessClock,
        actor: str,
        counter: CallCounter,
    ) -> None:
        self._committer = committer
        self._store = store
        self._clock = clock
        self._actor = actor
        self._counter = counter
        self._asked_at: dict[str, float] = {}  # by Agent: when a Take last told of its breakers, monotonic
        self.windows: dict[
            BreakerKey, CallWindow
        ] = {}  # of the calls of this process; a few without calls lately may be left
        self._windows_max = WINDOWS_KEPT
        self.known: dict[BreakerKey, BreakerRow] = {}  # that are not closed, or paused
        self._asked: set[BreakerKey] = set()  # that this process has asked to open, without an answer so far

    def is_barred(self, app: str, agent: str, target: str) -> bool:
        """Returns True if the breaker, or the whole Agent, is known not to let requests through as always."""
        whole = self.known.get((app, agent, ""))
        return (app, agent, target) in self.known or (whole is not None and whole.keeps_all)

    def may_ask(self, app: str, agent: str) -> bool:
        """Returns True if a Take for the Agent may bring something, or if it is time to look whether it would.

        A breaker of the whole Agent that lets nothing through is asked again when a canary may go, and now and then,
        because a person may have closed it.
        """
        row = self.known.get((app, agent, ""))
        if row is None or row.state is BreakerState.HALF_OPEN or may_let_through(row, self._store.now()):
            return True  # how far the canaries of a wave are is known in the store alone
        return self._clock.monotonic() >= self._asked_at.get(agent, 0.0) + LOOK_SECONDS

    def learn(self, agents: Iterable[str], rows: Iterable[BreakerRow]) -> None:
        """Take in the breakers of some Agents as a Take has found them."""
        asked = set(agents)
        self._asked_at.update(dict.fromkeys(asked, self._clock.monotonic()))
        found: dict[BreakerKey, BreakerRow] = {}
        for row in rows:
            if row.state is not BreakerState.CLOSED or row.paused_at is not None:
                found[row.app, row.agent, row.target] = row
        for key in [key for key in self.known if key[1] in asked and key not in found]:
            del self.known[key]
            self.windows.pop(key, None)  # they speak of an outage that is over
        self.known.update(found)

    def note_call(
        self, agent: Agent, step: StepRow, call: EndedCall, *, retry_after: float | None, unavailable: bool
    ) -> None:
        """Count a call that has ended, and ask to open the breaker if too many failed."""
        now = self._store.now()
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
            actor=self._actor,
            app=step.app,
            agent=step.agent,
            target=step.target,
            policy=agent.breaker_text,
            reason=reason,
            failing_since=counts.since,
            retry_after=retry_after,
            is_one_request=counts.is_one_request,
        )
        self._committer.put(command, partial(self._process_answer, key))

    def _add_window(self, key: BreakerKey, policy: Breaker) -> CallWindow:
        if len(self.windows) >= self._windows_max:
            now = self._store.now()
            self.windows = {of: window for of, window in self.windows.items() if not window.is_empty(now)}
            self._windows_max = max(WINDOWS_KEPT, 2 * len(self.windows))
        window = self.windows[key] = CallWindow(policy)
        return window

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
