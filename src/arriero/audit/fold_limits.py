"""The fold of attempts that are counted under the limits of their Agents, and the invariants of these limits."""

from collections import Counter, defaultdict, deque
from collections.abc import Mapping, Sequence

import msgspec

from ..events import Event, UnreadableEvent
from ..events.step import AttemptTried, CompensationDispatched, StepDispatched
from ..events.store import LimitsDeclared
from ..limits import LimitPolicy, read_limits
from ..model import MICROSECONDS, StepState
from .fold import StepFold, TaskFold, Violation

AgentOfApp = tuple[str, str]
Counted = tuple[str, str, str, str]  # App, Agent, limit, hash of the key

EXPIRED_SECONDS = 60  # after its deadline: then an attempt that nobody recovered has lost its slot
UNCOUNTED_SECONDS = 60  # after a first declaration: what began meanwhile may not have known of it


class RunningAttempt(msgspec.Struct, frozen=True):
    """An attempt under way, and what it is counted under."""

    fence: int
    counted: tuple[Counted, ...]
    complete_by: int


class LimitsFold:
    """Attempts under way and calls of rates, as far as limits count them."""

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

    def list_used(self, app: str, agent: str) -> dict[tuple[str, str], int]:
        """List what is in use of the concurrent limits of an Agent, by limit and hash of the key."""
        return {one[2:]: count for one, count in self._used.items() if one[:2] == (app, agent) and count}


def _is_under_way(step: StepFold | None, attempt: RunningAttempt) -> bool:
    return step is not None and step.state == StepState.RUNNING and step.fence == attempt.fence
