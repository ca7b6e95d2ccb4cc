"""The folds of what Agents share: breakers, limits, the return of expired attempts, and the Agents that did a step."""

from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import assert_never

import msgspec

from ..events import Event, UnreadableEvent
from ..events.step import (
    AttemptTried,
    CompensationDispatched,
    RecoverApplied,
    StepDispatched,
    StepExpired,
    StepOpened,
    StepReopened,
)
from ..events.store import (
    AgentPaused,
    AgentResumed,
    BreakerAnswered,
    BreakerClosed,
    BreakerOpened,
    BreakerProbeBegun,
    BreakerProbed,
    BreakerProbeEnded,
    EventOfBreaker,
    LimitsDeclared,
)
from ..model import MICROSECONDS, StepState
from ..model.agents import LimitPolicy, read_limits
from .fold import StepFold, TaskFold, Violation

_SHARES_KEY = "interchangeable"
_STAYS = "pinned"


def judge_dispatch(task: TaskFold, step: StepFold, event: StepDispatched | CompensationDispatched) -> None:
    """Judge the Agent that begins an attempt, and keep it."""
    if not event.agent or event.agent == step.agent:
        return
    if step.routing != _SHARES_KEY and (step.dispatched or step.kind == "compensation"):
        task.convict(
            "I74",
            f"attempt {event.attempt} of step {step.ordinal} was dispatched to Agent {event.agent}; it belongs to {step.agent}"
            " and is not interchangeable",
        )
    step.agent = event.agent


def judge_compensation(task: TaskFold, step: StepFold) -> None:
    """Judge that a compensation goes to the Agent that did its step."""
    forward = None if step.undoes is None else task.steps.get(step.undoes)
    if forward is None or forward.routing == _SHARES_KEY:
        return
    if step.agent != forward.agent:
        task.convict(
            "I74",
            f"compensation {step.ordinal} was opened for Agent {step.agent}; Agent {forward.agent} did step {forward.ordinal}",
        )
    if step.routing == _SHARES_KEY:
        task.convict("I74", f"compensation {step.ordinal} may move to other Agents, its step {forward.ordinal} may not")


def judge_reopening(task: TaskFold, step: StepFold, event: StepReopened) -> None:
    """Judge that a step which was taken is asked for again where it was taken. ``step``: as it was declared before."""
    moved = event.agent != step.agent and step.routing == _STAYS and event.routing != _SHARES_KEY
    if moved and step.dispatched:
        task.convict(
            "I74",
            f"step {step.ordinal} was opened again for Agent {event.agent}; it was taken by {step.agent} and is not"
            " interchangeable",
        )


def judge_opening(task: TaskFold, step: StepFold, event: StepOpened) -> None:
    """Judge the Agent of a new step."""
    if event.kind == "compensation":
        judge_compensation(task, step)


class RedispatchFold:
    """Instants at which recovered attempts become due, for each term of the leader that recovered them."""

    def __init__(self) -> None:
        self._due_at: defaultdict[int, list[int]] = defaultdict(list)

    def fold_commit(self, events: Sequence[Event | UnreadableEvent]) -> None:
        """Fold one commit of a task."""
        terms = {
            (event.step, event.fence): event.term
            for event in events
            if isinstance(event, StepExpired) and event.why == "expired" and event.term is not None
        }
        for event in events if terms else ():
            term = terms.get((event.step, event.fence)) if isinstance(event, RecoverApplied) else None
            if term is None or not isinstance(event, RecoverApplied) or event.what == "error":
                continue
            if event.is_charged:  # what failed in an outage waits for its breaker, and comes back in waves of canaries
                self._due_at[term].append(event.not_before)

    def find_violations(self, per_second: int) -> Iterable[Violation]:
        """Find the terms in which more than ``per_second`` came back in a second, and one that began in it."""
        for term, instants in sorted(self._due_at.items()):
            due_at = sorted(instants)
            allowed = per_second + 1  # a second may begin and end inside a slot
            for first, beyond in zip(due_at, due_at[allowed:], strict=False):
                if beyond - first < MICROSECONDS:
                    yield Violation(
                        "I71",
                        "",
                        f"under term {term} more than {allowed} attempts that expired came back within the second from {first}",
                    )
                    break


AgentOfApp = tuple[str, str]
Counted = tuple[str, str, str, str]  # App, Agent, limit, hash of the key

EXPIRED_SECONDS = 60  # after its deadline: then an attempt that nobody recovered has lost its slot
UNCOUNTED_SECONDS = 60  # after a first declaration: what began meanwhile may not have known of it


class RunningAttempt(msgspec.Struct, frozen=True):
    """A running attempt, and what it is counted under."""

    fence: int
    counted: tuple[Counted, ...]
    complete_by: int


class LimitsFold:
    """Running attempts and calls of rates, as far as limits count them."""

    def __init__(self) -> None:
        self.declared: dict[AgentOfApp, dict[str, LimitPolicy]] = {}
        self.violations: list[Violation] = []
        self._uncounted_until: dict[AgentOfApp, int] = {}
        self._running: defaultdict[int, dict[int, RunningAttempt]] = defaultdict(dict)  # by task and step
        self._used: Counter[Counted] = Counter()
        self._begun: defaultdict[Counted, deque[int]] = defaultdict(deque)

    def declare(self, event: LimitsDeclared, at: int) -> None:
        """Fold a declaration: it holds from now on."""
        whose = (event.app, event.agent)
        before = self.declared.get(whose, {})
        self.declared[whose] = {policy.name: policy for policy in read_limits(bytes(event.limits).decode())}
        if not before:
            self._uncounted_until[whose] = at + UNCOUNTED_SECONDS * MICROSECONDS
        for counted in list(self._begun):
            policy = self.declared[whose].get(counted[2])
            if counted[:2] == whose and policy != before.get(counted[2]):
                del self._begun[counted]  # another rate counts from its declaration on

    def fold_commit(
        self, task: TaskFold, at: int, events: Sequence[Event | UnreadableEvent], apps: Mapping[int, str]
    ) -> None:
        """Fold one commit of a task, after the task's own fold. ``apps``: of process starts."""
        if not self.declared:
            return
        running = self._running.get(task.task_no)
        if running:
            for ordinal in [no for no, one in running.items() if not _is_under_way(task.steps.get(no), one)]:
                self._used.subtract(running.pop(ordinal).counted)
            for ordinal, one in running.items():
                deadline = task.steps[ordinal].complete_by  # it may have been extended
                running[ordinal] = RunningAttempt(one.fence, one.counted, deadline or one.complete_by)
        for event in events:
            if isinstance(event, StepDispatched | CompensationDispatched):
                self._begin(task, at, event, apps.get(event.process, ""))
            elif isinstance(event, AttemptTried):
                self._try_again(task, at, event)

    def _begin(self, task: TaskFold, at: int, event: StepDispatched | CompensationDispatched, app: str) -> None:
        step = task.steps.get(event.step)
        whose = (app, "" if step is None else step.agent)
        policies = self.declared.get(whose)
        if not policies:
            return
        where = f"step {event.step} of Agent {whose[1]}"
        if event.limits is None:
            if at > self._uncounted_until[whose]:
                self._convict("I72", task, f"{where} began and was counted under no limit")
            return
        counted = tuple((*whose, name, key) for name, key in event.limits.items() if name in policies)
        for one in counted:
            policy = policies[one[2]]
            if policy.kind == "concurrent":
                self._used[one] += 1
                if self._used[one] > policy.most:
                    self._forget_expired(at)
                if self._used[one] > policy.most:
                    self._convict("I72", task, f"{where} began as number {self._used[one]} of {policy.most} ({one[2]})")
            else:
                self._begin_call(task, at, one, policy, where)
        self._running[task.task_no][event.step] = RunningAttempt(event.fence, counted, event.complete_by)

    def _forget_expired(self, at: int) -> None:
        """Forget attempts whose deadline passed long ago and that nobody has recovered: their slots have come back."""
        for running in self._running.values():
            before = at - EXPIRED_SECONDS * MICROSECONDS
            for ordinal in [no for no, one in running.items() if one.complete_by <= before]:
                self._used.subtract(running.pop(ordinal).counted)

    def _try_again(self, task: TaskFold, at: int, event: AttemptTried) -> None:
        running = self._running[task.task_no].get(event.step)
        for counted in () if running is None else running.counted:
            policy = self.declared[counted[:2]].get(counted[2])
            if policy is not None and policy.kind == "rate" and event.limits.get(counted[2]) == counted[3]:
                self._begin_call(task, at, counted, policy, f"another call of step {event.step} of Agent {counted[1]}")

    def _begin_call(self, task: TaskFold, at: int, counted: Counted, policy: LimitPolicy, where: str) -> None:
        begun = self._begun[counted]
        begun.append(at)
        while begun[0] <= at - policy.per * MICROSECONDS:
            begun.popleft()
        if len(begun) > policy.most:
            self._convict(
                "I73", task, f"{where} began as call {len(begun)} of {policy.most} in {policy.per:g} s ({counted[2]})"
            )

    def _convict(self, invariant: str, task: TaskFold, detail: str) -> None:
        self.violations.append(Violation(invariant, task.task_id, detail))


def _is_under_way(step: StepFold | None, attempt: RunningAttempt) -> bool:
    return step is not None and step.state == StepState.RUNNING and step.fence == attempt.fence


Convict = Callable[[str, str], None]


class BreakerFold:
    """The fold of one breaker's events."""

    def __init__(self, name: str, convict: Convict) -> None:
        self.name = name
        self._convict = convict
        self.state = "closed"
        self.fence = 0
        self.paused = False
        self._wave = 0
        self._under_way: set[tuple[int, int, int]] = set()  # task, step and its fence, of canaries of this fence
        self._answered = 0
        self._probe_fence = -1  # of the probe running
        self._probe_until = 0  # before that no other one begins

    def fold(self, event: EventOfBreaker) -> None:
        """Fold one event."""
        match event:
            case BreakerOpened():
                self._open(event)
            case BreakerProbed():
                self._probe(event)
            case BreakerAnswered():
                self._answer(event)
            case BreakerProbeBegun():
                self._begin_probe(event)
            case BreakerProbeEnded():
                self._end_probe(event)
            case BreakerClosed():
                self._grow(event.fence, "closed")
                if self.state == "closed":
                    self._convict("I62", f"breaker {self.name} was closed twice")
                self._move("closed")
            case AgentPaused():
                self._judge_person(event, "paused")
                self._judge_pause(was_paused=True)
                self.paused = True
            case AgentResumed():
                self._judge_person(event, "resumed")
                self._judge_pause(was_paused=False)
                self.paused = False
            case _:
                assert_never(event)

    def _open(self, event: BreakerOpened) -> None:
        self._grow(event.fence, "opened")
        if self.state == "open" and not event.by:
            self._convict("I62", f"breaker {self.name} was opened while it was open")
        if not event.by and event.probe_at is None:
            self._convict("I62", f"breaker {self.name} opened by itself, and no canary will ever go")
        if not event.reason:
            self._convict("I59", f"breaker {self.name} was opened without a reason")
        self._move("open")

    def _probe(self, event: BreakerProbed) -> None:
        where = f"breaker {self.name}: a canary of task {event.task} step {event.step}"
        if self.state == "closed":
            self._convict("I63", f"{where} went while the breaker was closed")
        if self.paused:
            self._convict("I63", f"{where} went while an operator kept the Agent paused")
        if event.fence != self.fence:
            if self.state == "half_open" and self._under_way:
                self._convict(
                    "I63", f"{where} began a wave while {len(self._under_way)} of the one before were running"
                )
            self._grow(event.fence, "probed")
            self._move("half_open")
            self._wave = event.wave
        canary = (event.task, event.step, event.step_fence)
        if canary in self._under_way:
            self._convict("I63", f"{where} went twice")
        self._under_way.add(canary)
        if len(self._under_way) + self._answered > self._wave:
            self._convict("I63", f"{where} went as number {len(self._under_way) + self._answered} of {self._wave}")
        self.state = "half_open"

    def _begin_probe(self, event: BreakerProbeBegun) -> None:
        self._grow(event.fence, "asked by a probe")
        if self.state != "open" or self.paused:
            self._convict(
                "I63", f"breaker {self.name}: a probe began while it was {'paused' if self.paused else self.state}"
            )
        if event.began_at < self._probe_until:
            self._convict("I63", f"breaker {self.name}: a probe began before the time of the last one was over")
        self._probe_fence, self._probe_until = event.fence, event.until

    def _end_probe(self, event: BreakerProbeEnded) -> None:
        self._grow(event.fence, "answered by a probe")
        if self.state != "open" or event.probe_fence != self._probe_fence:
            self._convict("I63", f"breaker {self.name}: a probe ended that was not running")
        if event.failure is None:
            self._move("half_open")
            self._wave, self._answered = 1, 1
        elif event.probe_at is None:
            self._convict("I62", f"breaker {self.name}: a probe failed, and no other one will ever go")
        self._probe_fence, self._probe_until = -1, event.probe_at or 0

    def _answer(self, event: BreakerAnswered) -> None:
        canary = (event.task, event.step, event.step_fence)
        if event.fence != self.fence or canary not in self._under_way:
            self._convict("I63", f"breaker {self.name}: a canary of task {event.task} ended that was not running")
        self._under_way.discard(canary)
        self._answered += event.outcome != "lost"

    def _grow(self, fence: int, what: str) -> None:
        if fence <= self.fence:
            self._convict("I62", f"breaker {self.name} was {what} under fence {fence}, the highest was {self.fence}")
        self.fence = max(self.fence, fence)

    def _move(self, state: str) -> None:
        self.state, self._wave, self._answered = state, 0, 0
        self._under_way = set()
        self._probe_fence, self._probe_until = -1, 0

    def _judge_person(self, event: AgentPaused | AgentResumed, what: str) -> None:
        if not event.by or not event.reason:
            self._convict("I59", f"Agent {self.name} was {what} by {event.by or 'nobody'}, reason {event.reason!r}")

    def _judge_pause(self, *, was_paused: bool) -> None:
        if self.paused is was_paused:
            self._convict("I62", f"Agent {self.name} was {'paused' if was_paused else 'resumed'} twice")
