"""Events of the store's own history about the circuit breakers of Agents. ``target`` is empty where an Agent has none."""

from ..model import Instant
from ..text.format import format_instant
from .base import HistoryEvent, HistoryNames


class _OfBreaker(HistoryEvent, frozen=True):
    """An event of one breaker. ``fence``: of the breaker from now on."""

    agent: str
    fence: int
    app: str = ""
    target: str = ""


class BreakerOpened(_OfBreaker, frozen=True, kw_only=True, tag="breaker.opened"):
    """No attempt of the Agent begins any more.

    ``probe_at``: when the first canary may go; None: a person must close it. ``by``: the person who opened it.
    """

    reason: str
    failing_since: Instant | None = None
    probe_at: Instant | None = None
    by: str = ""

    def describe(self, names: HistoryNames) -> str:
        if self.by:
            return f'{self.by} opened it: "{self.reason}"'
        until = "" if self.probe_at is None else f"; a canary may go from {format_instant(self.probe_at)} on"
        return f"it opened: {self.reason}{until}"


class BreakerProbed(_OfBreaker, frozen=True, kw_only=True, tag="breaker.probed"):
    """A canary goes: an attempt of ``step`` (its ordinal) of ``task``, as number ``number`` of a wave of so many."""

    task: int
    step: int
    step_fence: int
    wave: int
    number: int

    def describe(self, names: HistoryNames) -> str:
        return f"canary {self.number} of {self.wave} went: task number {self.task}, step {self.step}"


class BreakerAnswered(_OfBreaker, frozen=True, kw_only=True, tag="breaker.answered"):
    """A canary has ended. ``outcome``: ``answered``, ``failed``, or ``lost`` with its process."""

    task: int
    step: int
    step_fence: int
    outcome: str

    def describe(self, names: HistoryNames) -> str:
        what = {"answered": "was answered", "failed": "failed", "lost": "was lost with its process"}
        return f"the canary of task number {self.task} {what.get(self.outcome, self.outcome)}"


class BreakerProbeBegun(_OfBreaker, frozen=True, kw_only=True, tag="breaker.probe_begun"):
    """A process asks the service by the Agent's probe, in place of a canary. Nobody else does before ``until``."""

    began_at: Instant
    until: Instant

    def describe(self, names: HistoryNames) -> str:
        return f"a probe asks the service; it has until {format_instant(self.until)}"


class BreakerProbeEnded(_OfBreaker, frozen=True, kw_only=True, tag="breaker.probe_ended"):
    """The probe that began under ``probe_fence`` has ended.

    ``failure``: what speaks against the service; None: it is well, and waves of canaries follow. ``probe_at``: of a failed
    one: when the next may go.
    """

    probe_fence: int
    failure: str | None = None
    probe_at: Instant | None = None

    def describe(self, names: HistoryNames) -> str:
        if self.failure is None:
            return "the probe says that the service is well"
        again = "" if self.probe_at is None else f"; again from {format_instant(self.probe_at)} on"
        return f"the probe failed: {self.failure}{again}"


class BreakerClosed(_OfBreaker, frozen=True, kw_only=True, tag="breaker.closed"):
    """Attempts begin as always. ``by``: the person who closed it; empty: the ramp is over."""

    by: str = ""
    reason: str = ""

    def describe(self, names: HistoryNames) -> str:
        return f'{self.by} closed it: "{self.reason}"' if self.by else "it closed: the service is well again"


class AgentPaused(_OfBreaker, frozen=True, kw_only=True, tag="agent.paused"):
    """A person keeps the Agent from taking anything."""

    by: str
    reason: str

    def describe(self, names: HistoryNames) -> str:
        return f'{self.by} paused it: "{self.reason}"'


class AgentResumed(_OfBreaker, frozen=True, kw_only=True, tag="agent.resumed"):
    """The Agent takes requests again."""

    by: str
    reason: str

    def describe(self, names: HistoryNames) -> str:
        return f'{self.by} resumed it: "{self.reason}"'


EventOfBreaker = (
    BreakerOpened
    | BreakerProbed
    | BreakerAnswered
    | BreakerProbeBegun
    | BreakerProbeEnded
    | BreakerClosed
    | AgentPaused
    | AgentResumed
)
