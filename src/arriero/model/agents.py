"""Plain data: the circuit breakers of Agents as rows of the state store, and the calls that they are judged by."""

from enum import StrEnum
from typing import Literal

import msgspec

from . import Instant

BEGUN_UNKNOWN = ""  # the calls of a rate whose row cannot be read: as many as it allows
WITHOUT_KEYS = "{}"  # of a request that belongs to no key of its own
NO_LIMIT_KEYS = (None, WITHOUT_KEYS)  # of requests that wait under no key


class LimitPolicy(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One limit of an Agent.

    Attributes:
        name: by which operators and the keys of requests name it; the limits of one Agent have different names.
        kind: ``concurrent``: attempts at a time. ``rate``: calls that begin within ``per`` seconds.
        most: how many.
        is_keyed: each key has a separate room.
    """

    name: str
    kind: Literal["concurrent", "rate"]
    most: int
    per: float = 0.0
    is_keyed: bool = False


class AgentLimitsRow(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """The limits of an Agent of an App, as the process that was started last has declared them.

    The one who takes requests of the Agent locks this row until the commit. So two processes never use the same room.

    Attributes:
        limits: the LimitPolicies, as JSON text; an empty list: none any longer.
        process_no: the process start that declared them.
        declared_at: when it did.
        has_keyless: there are, or may be, requests or attempts that were kept before these limits; they carry no keys.
        look_at: when such requests are looked for again.
        last_keys: keys behind which requests of another Agent are looked for that this one may take over.
    """

    app: str
    agent: str
    limits: str = "[]"
    process_no: int = 0
    declared_at: Instant = Instant(0)
    has_keyless: bool = False
    look_at: Instant = Instant(0)
    last_keys: str = ""


class RateRow(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """Calls of one rate limit that began a short time ago; ``key`` is empty if it is not keyed.

    Attributes:
        begun: pairs of instant and number of calls, oldest first, as JSON text.
        until: from then on the row says nothing any longer.
    """

    app: str
    agent: str
    name: str
    key: str
    begun: str
    until: Instant


class WaitingKeysRow(msgspec.Struct, frozen=True, gc=False):
    """Keys under which requests of an Agent wait, or waited when it was written.

    Attributes:
        keys: as in the rows of the requests.
        look_at: when a Take looks at them next. Not before that a request under them is due and has room.
    """

    app: str
    agent: str
    keys: str
    look_at: Instant


class LimitsInUse(msgspec.Struct, frozen=True):
    """The limits of an Agent and what is in use of them.

    Attributes:
        running: pairs of keys (as JSON text) and the number of running attempts with them.
        rates: calls of rate limits that began a short time ago.
        now: the store's clock when they were read.
    """

    row: AgentLimitsRow
    running: tuple[tuple[str, int], ...]
    rates: tuple[RateRow, ...]
    now: Instant


_read_policies = msgspec.json.Decoder(tuple[LimitPolicy, ...]).decode
_read_keys = msgspec.json.Decoder(dict[str, str]).decode


def read_limits(text: str) -> tuple[LimitPolicy, ...]:
    """Read the limits of a row. Raises msgspec.MsgspecError."""
    return _read_policies(text)


def encode_limits(limits: tuple[LimitPolicy, ...]) -> str:
    """The JSON text of limits for a row."""
    return msgspec.json.encode(limits).decode()


def read_limit_keys(text: str | None) -> dict[str, str]:
    """Read the keys of a request, by the names of their limits."""
    return {} if text is None else _read_keys(text)


def encode_limit_keys(keys: dict[str, str]) -> str:
    """The JSON text of keys for a row; the same keys give the same text."""
    return msgspec.json.encode(keys, order="sorted").decode()


BreakerKey = tuple[str, str, str]  # App, Agent, target


class BreakerState(StrEnum):
    """The state of a circuit breaker; ``core.breaker`` has the table of its moves."""

    CLOSED = "closed"  # calls are made
    OPEN = "open"  # no call is made; requests wait
    HALF_OPEN = "half_open"  # a few calls are made, to find out if the service is healthy


class AgentVerb(StrEnum):
    """The verbs of an operator on an Agent; ``core.breaker_verbs`` says what they do."""

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
        policy: the ``model.policies.Breaker`` of the process that opened it, as JSON text.
        changed_at: when the state changed last.
        opened_at: when the outage began for arriero; stays until the breaker is closed. Also of the last outage.
        failing_since: start of the window whose failures opened it. Failed attempts since then are given back.
        closed_at: when the last outage ended; None while it continues.
        probe_at: of an open breaker: when the next canary may go. None: only an operator closes it.
        ramp_from: when the first canary succeeded.
        wave: how many canaries may go under this fence.
        granted, succeeded, failed: canaries of this wave.
        reason: why it was opened.
        opened_by: the person who opened it; empty: it opened by itself.
        paused_at, paused_by, pause_reason: an operator keeps the Agent from taking anything.
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
        """The name that operators see: the Agent, with the target if there is one."""
        return f"{self.agent}[{self.target}]" if self.target else self.agent

    @property
    def is_outage(self) -> bool:
        """True while the service counts as down: failed attempts are not charged."""
        return self.state is not BreakerState.CLOSED

    @property
    def is_opened_whole(self) -> bool:
        """True if an operator opened the whole Agent: none of its targets gets calls until an operator closes it."""
        return not self.target and self.state is BreakerState.OPEN and self.probe_at is None

    @property
    def keeps_all(self) -> bool:
        """True if an operator keeps the Agent from taking requests of any target."""
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
