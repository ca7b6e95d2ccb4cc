"""Plain data: the circuit breakers of Agents as rows of the state store, and the calls that they are judged by."""

from enum import StrEnum

import msgspec

from .model import Instant

BreakerKey = tuple[str, str, str]  # App, Agent, target


class BreakerState(StrEnum):
    """The state of a circuit breaker; ``core.breaker`` has the table of its moves."""

    CLOSED = "closed"  # calls are made
    OPEN = "open"  # no call is made; requests wait
    HALF_OPEN = "half_open"  # a few calls are made, to find out if the service is well


class AgentVerb(StrEnum):
    """The verbs of a person on an Agent; ``core.breaker_verbs`` says what they do."""

    OPEN = "open"
    CLOSE = "close"
    PAUSE = "pause"
    RESUME = "resume"


FAILED_ENDS = frozenset(("transient", "unknown", "expired"))  # the service may be down; ``permanent`` is an answer


class BreakerRow(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """The circuit breaker of an Agent of an App, or of one target of it (``target`` is empty if there are none).

    The row exists from an opening or pause until the breaker has been closed for an hour. Without a row it is closed.

    Attributes:
        fence: grows whenever the state changes and with every wave of canaries.
        policy: the ``policies.Breaker`` of the process that opened it, as JSON text.
        changed_at: when the state changed last.
        opened_at: when the outage began for arriero; stays until the breaker is closed. Also of the last outage.
        failing_since: start of the window whose failures opened it. Failed attempts since then are given back.
        closed_at: when the last outage ended; None while it goes on.
        probe_at: of an open breaker: when the next canary may go. None: only a person closes it.
        ramp_from: when the first canary succeeded.
        wave: how many canaries may go under this fence.
        granted, succeeded, failed: canaries of this wave.
        reason: why it was opened.
        opened_by: the person who opened it; empty: it opened by itself.
        paused_at, paused_by, pause_reason: a person keeps the Agent from taking anything.
    """

    app: str
    agent: str
    target: str = ""
    state: BreakerState = BreakerState.CLOSED
    fence: int = 0
    policy: str = "{}"
    changed_at: Instant = Instant(0)
    opened_at: Instant | None = None
    failing_since: Instant | None = None
    closed_at: Instant | None = None
    probe_at: Instant | None = None
    ramp_from: Instant | None = None
    wave: int = 0
    granted: int = 0
    succeeded: int = 0
    failed: int = 0
    reason: str = ""
    opened_by: str = ""
    paused_at: Instant | None = None
    paused_by: str = ""
    pause_reason: str = ""

    @property
    def label(self) -> str:
        """The name that people see: the Agent, with the target if there is one."""
        return f"{self.agent}[{self.target}]" if self.target else self.agent

    @property
    def is_outage(self) -> bool:
        """True while the service counts as down: failed attempts are not charged."""
        return self.state is not BreakerState.CLOSED

    @property
    def is_opened_whole(self) -> bool:
        """True if a person opened the whole Agent: none of its targets gets calls until a person closes it."""
        return not self.target and self.state is BreakerState.OPEN and self.probe_at is None

    @property
    def keeps_all(self) -> bool:
        """True if a person keeps the Agent from taking requests of any target."""
        return self.is_opened_whole or (not self.target and self.paused_at is not None)


class CallCounts(msgspec.Struct, frozen=True):
    """Calls of one Agent or target that ended within a window.

    Attributes:
        calls: all but those that were cut off because their process stopped.
        failed: of them, ended as in FAILED_ENDS.
        slow: of them, took longer than the policy's ``slow_seconds``.
        since: start of the window, or of its first call.
        last_error: message of the last failure.
        failed_seconds: how long the failed ones took, added up.
        failed_in_a_row: the last ones, none of which succeeded; ``steps_in_a_row``: how many steps made them.
        is_one_request: one step made all that failed; ``has_other_success``: a call of another step succeeded.
    """

    calls: int
    failed: int
    slow: int
    since: Instant
    last_error: str = ""
    failed_seconds: float = 0.0
    failed_in_a_row: int = 0
    steps_in_a_row: int = 0
    is_one_request: bool = False
    has_other_success: bool = False
