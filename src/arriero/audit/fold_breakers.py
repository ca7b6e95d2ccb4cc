"""The fold of events about the circuit breakers of Agents, and their invariants."""

from collections.abc import Callable
from typing import assert_never

from ..events.breaker import (
    AgentPaused,
    AgentResumed,
    BreakerAnswered,
    BreakerClosed,
    BreakerOpened,
    BreakerProbeBegun,
    BreakerProbed,
    BreakerProbeEnded,
    EventOfBreaker,
)

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
        self._probe_fence = -1  # of the probe under way
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
            self._convict("I63", f"{where} went while a person kept the Agent paused")
        if event.fence != self.fence:
            if self.state == "half_open" and self._under_way:
                self._convict(
                    "I63", f"{where} began a wave while {len(self._under_way)} of the one before were under way"
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
            self._convict("I63", f"breaker {self.name}: a probe ended that was not under way")
        if event.failure is None:
            self._move("half_open")
            self._wave, self._answered = 1, 1
        elif event.probe_at is None:
            self._convict("I62", f"breaker {self.name}: a probe failed, and no other one will ever go")
        self._probe_fence, self._probe_until = -1, event.probe_at or 0

    def _answer(self, event: BreakerAnswered) -> None:
        canary = (event.task, event.step, event.step_fence)
        if event.fence != self.fence or canary not in self._under_way:
            self._convict("I63", f"breaker {self.name}: a canary of task {event.task} ended that was not under way")
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
