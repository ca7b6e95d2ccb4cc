"""Policies as plain data: they travel in the rows, so that no user code is needed to supervise.

Durations come in as seconds or timedelta and are kept as seconds.
"""

from collections.abc import Mapping
from datetime import timedelta
from functools import partial
from typing import Any, Literal

import msgspec

from ..errors import ArrieroError, DefinitionError, InvalidInput

Duration = float | timedelta
Then = Literal["compensate", "hold"]
UndoOnDoubt = Literal["continue", "stop"]

SECONDS_MAX = 100 * 366 * 86_400.0  # a century: beyond it an instant no longer fits what stores and clocks can hold


def seconds(
    duration: Duration, what: str, *, at_least: float = 0.0, error_type: type[ArrieroError] = DefinitionError
) -> float:
    """A duration in seconds. Raises ``error_type`` naming ``what`` when it is not a duration or out of range."""
    value = duration.total_seconds() if isinstance(duration, timedelta) else duration
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise error_type(f"{what} is {duration!r}; give seconds or a timedelta")
    if not at_least <= value <= SECONDS_MAX:  # NaN fails it too
        raise error_type(f"{what} is {value!r} seconds; it must lie between {at_least} and {SECONDS_MAX:.0f}")
    return float(value)


check_seconds = partial(seconds, error_type=InvalidInput)
"""Check a duration of a call, as ``seconds`` checks one of a definition. Raises InvalidInput naming ``what``."""


def check_type(value: Any, of: type, what: str) -> Any:
    """The value, if it is of the type. Raises DefinitionError naming ``what``."""
    if not isinstance(value, of):
        raise DefinitionError(f"{what} is {value!r}; it must be of the type {of.__name__}")
    return value


def _check_factor(value: object, what: str, *, most: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 1 <= value <= most:
        raise DefinitionError(f"{what} is {value!r}; it must lie between 1 and {most}")


def check_count(
    value: object, what: str, *, least: int, most: int, error_type: type[ArrieroError] = DefinitionError
) -> None:
    """Check a whole number. Raises ``error_type`` naming ``what``."""
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise error_type(f"{what} is {value!r}; it must be a whole number from {least} to {most}")


def _check_share(value: object, what: str) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= 1:
        raise DefinitionError(f"{what} is {value!r}; it must be above 0 and at most 1")


class Retry(msgspec.Struct, frozen=True, kw_only=True):
    """Tries inside one attempt, all under one key.

    Args:
        tries: calls in one attempt at most, 1 to 100.
        delay: seconds before the second try; grows by ``factor`` up to ``delay_max``, and is jittered.
        max_calls: calls of the step in all, 1 to 1,000, in place of ``tries`` and of ``attempts`` and ``rounds`` of its Supervision.
            Each call is a separate attempt, with the delays between attempts: 0.5 s, doubled up to a minute.
    """

    tries: int = 3
    delay: Duration = 0.2
    factor: float = 2.0
    delay_max: Duration = 5.0
    max_calls: int | None = None  # never in a row; see ``spread_calls``

    def __post_init__(self) -> None:
        if self.max_calls is not None:
            check_count(self.max_calls, "Retry.max_calls", least=1, most=1_000)
            if (self.tries, self.delay, self.factor, self.delay_max) != (3, 0.2, 2.0, 5.0):
                raise DefinitionError(
                    "Retry.max_calls makes each call an attempt of its own: leave tries, delay, factor and delay_max out, which"
                    " are about calls inside one attempt"
                )
        check_count(self.tries, "Retry.tries", least=1, most=100)
        _check_factor(self.factor, "Retry.factor", most=100)
        _keep_seconds(self, "delay", "Retry.delay")
        _keep_seconds(self, "delay_max", "Retry.delay_max")

    def delay_seconds(self) -> tuple[float, float]:
        """``delay`` and ``delay_max`` in seconds."""
        assert isinstance(self.delay, float)
        assert isinstance(self.delay_max, float)
        return self.delay, self.delay_max


class Supervision(msgspec.Struct, frozen=True, kw_only=True):
    """Retries by the Supervisor after attempts fail or expire.

    Args:
        attempts: attempts in one round, 1 to 1,000.
        rounds: rounds, each after a wait of ``cool_off``, 1 to 1,000.
        then: when all is spent: undo the task, or hold it for an operator.
        charge_outages: False: an attempt that fails while the breaker of its Agent is open, or in the window that opened it,
            is not counted.
        complete_within_factor: each later attempt of a step gets that many times the time of the one before, 1 to 10; at most
            one day, or the step's ``complete_within`` if that is longer.
    """

    attempts: int = 3
    rounds: int = 1
    cool_off: Duration = 900.0
    then: Then = "compensate"
    charge_outages: bool = False
    complete_within_factor: float = 1.0

    def __post_init__(self) -> None:
        check_count(self.attempts, "Supervision.attempts", least=1, most=1_000)
        check_count(self.rounds, "Supervision.rounds", least=1, most=1_000)
        _keep_seconds(self, "cool_off", "Supervision.cool_off")
        if self.then not in ("compensate", "hold"):
            raise DefinitionError(f"Supervision.then is {self.then!r}; it must be 'compensate' or 'hold'")
        check_type(self.charge_outages, bool, "Supervision.charge_outages")
        _check_factor(self.complete_within_factor, "Supervision.complete_within_factor", most=10)
        msgspec.structs.force_setattr(self, "complete_within_factor", float(self.complete_within_factor))

    def cool_off_seconds(self) -> float:
        """``cool_off`` in seconds."""
        assert isinstance(self.cool_off, float)
        return self.cool_off


class Breaker(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Circuit breaker of an Agent: when its service counts as down, and how calls begin again.

    Args:
        failure_rate: share of failed calls in the window from which it opens, above 0 and at most 1.
        slow_rate: share of slow calls from which it opens; None: slow calls do not matter.
        slow_seconds: a call that takes longer is slow; needed with ``slow_rate``, less than ``window``.
        minimum: calls in the window, below which it does not open, 1 to 1,000,000.
        window: seconds that are looked at, 1 to 3,600.
        cool_off: seconds until one canary is sent, and again after each canary that fails; 0.1 to 86,400.
        ramp: seconds after the first success in which growing waves of calls are sent, 0 to 86,400. Then it closes.
    """

    failure_rate: float = 0.5
    slow_rate: float | None = None
    slow_seconds: Duration | None = None
    minimum: int = 20
    window: Duration = 30.0
    cool_off: Duration = 10.0
    ramp: Duration = 30.0

    def __post_init__(self) -> None:
        _check_share(self.failure_rate, "Breaker.failure_rate")
        check_count(self.minimum, "Breaker.minimum", least=1, most=1_000_000)
        for field, least, most in (("window", 1.0, 3_600.0), ("cool_off", 0.1, 86_400.0), ("ramp", 0.0, 86_400.0)):
            _keep_seconds(self, field, f"Breaker.{field}")
            value = getattr(self, field)
            if not least <= value <= most:
                raise DefinitionError(
                    f"Breaker.{field} is {value:g} seconds; it must lie between {least:g} and {most:g}"
                )
        if (self.slow_rate is None) != (self.slow_seconds is None):
            raise DefinitionError("Breaker: slow_rate and slow_seconds need each other; give both or neither")
        if self.slow_rate is not None:
            _check_share(self.slow_rate, "Breaker.slow_rate")
            _keep_seconds(self, "slow_seconds", "Breaker.slow_seconds")
            if not 0 < self.slow_limit < self.window_seconds:
                raise DefinitionError(
                    f"Breaker.slow_seconds is {self.slow_limit:g}; it must lie between 0 and the window of "
                    f"{self.window_seconds:g} seconds, because a window shorter than a call sees none of them"
                )

    @property
    def window_seconds(self) -> float:
        """``window`` in seconds."""
        assert isinstance(self.window, float)
        return self.window

    @property
    def cool_off_seconds(self) -> float:
        """``cool_off`` in seconds."""
        assert isinstance(self.cool_off, float)
        return self.cool_off

    @property
    def ramp_seconds(self) -> float:
        """``ramp`` in seconds."""
        assert isinstance(self.ramp, float)
        return self.ramp

    @property
    def slow_limit(self) -> float:
        """``slow_seconds`` in seconds; infinite without it."""
        return self.slow_seconds if isinstance(self.slow_seconds, float) else float("inf")


class Adaptive(msgspec.Struct, frozen=True, kw_only=True):
    """Adaptive concurrency of an Agent: its places in a process move between ``minimum`` and ``max_in_flight``.

    Args:
        minimum: places that it always has, 1 to ``max_in_flight``.
        tolerance: how many times as long as usual a call may take before there are fewer places, 1 to 10.
    """

    minimum: int = 1
    tolerance: float = 1.2

    def __post_init__(self) -> None:
        check_count(self.minimum, "Adaptive.minimum", least=1, most=100_000)
        _check_factor(self.tolerance, "Adaptive.tolerance", most=10)


BATCH_MAX = 1_000  # messages that one task handles: they end in one commit
BATCH_SECONDS_MAX = 86_400.0


class ConvoyPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """Behaviour of a convoy when its head fails permanently, when a sequence number is missing, and when many tasks wait.

    Args:
        handle_batch: hand that many waiting tasks of the key at most to one task, 1 to 1,000. None: one after the other.
        batch_within: seconds, from the submission of the first, for which a batch waits until it is full; at most a day.
    """

    head: Literal["wait", "skip", "park"] = "wait"
    gap: Literal["wait", "skip", "park"] = "wait"
    gap_within: Duration = 3600.0
    handle_batch: int | None = None
    batch_within: Duration = 0.0

    def __post_init__(self) -> None:
        for name, word in (("head", self.head), ("gap", self.gap)):
            if word not in ("wait", "skip", "park"):
                raise DefinitionError(f"ConvoyPolicy.{name} is {word!r}; it must be 'wait', 'skip' or 'park'")
        _keep_seconds(self, "gap_within", "ConvoyPolicy.gap_within")
        _keep_seconds(self, "batch_within", "ConvoyPolicy.batch_within")
        if self.handle_batch is not None:
            check_count(self.handle_batch, "ConvoyPolicy.handle_batch", least=1, most=BATCH_MAX)
        elif self.batch_within:
            raise DefinitionError(
                "ConvoyPolicy.batch_within is about batches: give handle_batch=, the tasks of one, too"
            )
        assert isinstance(self.batch_within, float)
        if self.batch_within > BATCH_SECONDS_MAX:
            raise DefinitionError(
                f"ConvoyPolicy.batch_within is {self.batch_within:g} seconds; it must be at most a day"
            )


class ChildOptions(msgspec.Struct, frozen=True, omit_defaults=True):
    """Options by which a child task is submitted.

    Args:
        policy: the ``TaskPolicy`` of its workflow, as JSON text, when its parent asked for it.
        task_id: None: it is made of its parent's, see ``core.children.describe_child``.
        priority: None: its parent's. So it is with the tags, JSON text.
        is_detached: its parent does not wait for its end, and does not undo it.
    """

    policy: str
    task_id: str | None = None
    convoy: str | None = None
    priority: int | None = None
    tags: str | None = None
    is_detached: bool = False


class StepPolicy(msgspec.Struct, frozen=True, omit_defaults=True):
    """All that the Supervisor and an Agent must know of one step, as it stands in the step's row.

    Args:
        extend_max: seconds that an attempt may take at most if its code extends it; None: the default.
        is_adjusted: an operator has changed it since the code gave it.
        began_with: fence and seconds of the attempt that was running when its time was changed; it keeps its own.
        child: of a step that is another task.
    """

    complete_within: float
    wait_within: float | None
    retry: Retry
    supervision: Supervision
    extend_max: float | None = None
    is_adjusted: bool = False
    began_with: tuple[int, float] | None = None
    child: ChildOptions | None = None

    @property
    def calls_max(self) -> int:
        """Tries x attempts x rounds: how often the remote side may be called at most."""
        return self.retry.tries * self.supervision.attempts * self.supervision.rounds


def _keep_seconds(policy: msgspec.Struct, field: str, what: str) -> None:
    """Replace a duration by its seconds; the struct is frozen for everybody else."""
    msgspec.structs.force_setattr(policy, field, seconds(getattr(policy, field), what))


ONE_TRY = Retry(tries=1)


def check_calls(retry: Retry, supervision: Supervision | None, what: str) -> int | None:
    """Check a Retry and what is given beside it. Returns the calls in all; None: the Retry does not say them.

    Args:
        supervision: None: none was given.
        what: for errors.
    Raises: DefinitionError - no policy, or two numbers of attempts.
    """
    max_calls: int | None = check_type(retry, Retry, "retry").max_calls
    if max_calls is None or supervision is None:
        return max_calls
    check_type(supervision, Supervision, "supervision")
    if (supervision.attempts, supervision.rounds) != (3, 1):
        raise DefinitionError(
            f"{what}: Retry.max_calls says how often it is called in all: leave attempts and rounds of its Supervision out"
        )
    return max_calls


def spread_calls(max_calls: int | None, retry: Retry, supervision: Supervision) -> tuple[Retry, Supervision]:
    """Turn the calls in all into what the rows and all releases know: that number of attempts of one call."""
    if max_calls is None:
        return retry, supervision
    return ONE_TRY, msgspec.structs.replace(supervision, attempts=max_calls, rounds=1)


STEP_LIMITS = ("attempts", "rounds", "cool_off", "complete_within", "wait_within")  # that an operator may change


def read_limit(policy: StepPolicy, name: str) -> float | None:
    """Read one of the ``STEP_LIMITS`` of a policy."""
    limit: float | None = getattr(policy if name.endswith("_within") else policy.supervision, name)
    return limit


def set_limits(policy: StepPolicy, limits: Mapping[str, float | None]) -> StepPolicy:
    """Set some of the ``STEP_LIMITS`` of a policy; it says that it is adjusted."""
    own = {name: value for name, value in limits.items() if name.endswith("_within")}
    of_supervision = {name: value for name, value in limits.items() if name not in own}
    supervision = msgspec.structs.replace(policy.supervision, **of_supervision)
    return msgspec.structs.replace(policy, supervision=supervision, is_adjusted=True, **own)


DEFAULT_CONVOY_POLICY = ConvoyPolicy()
# What releases without them mean.
_LEFT_OUT = (
    ',"max_calls":null',
    ',"charge_outages":false',
    ',"complete_within_factor":1.0',
    ',"handle_batch":null',
    ',"batch_within":0.0',
)


class ConvoyOverrides(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """A convoy's own policy; None: the workflows' holds."""

    head: str | None = None
    gap: str | None = None
    gap_within: float | None = None


class TaskPolicy(msgspec.Struct, frozen=True, omit_defaults=True):
    """The workflow's policy, as it stands in the task's row.

    ``undo_on_doubt``: a row without it is of a task of one step, or of an earlier release, which always stopped.
    """

    complete_within: float | None
    supervision: Supervision
    convoy: ConvoyPolicy = DEFAULT_CONVOY_POLICY
    undo_on_doubt: UndoOnDoubt = "stop"


def encode_policy(policy: StepPolicy | TaskPolicy) -> str:
    """The JSON text of a policy for a row.

    Fields that earlier releases do not know are left out if they have their defaults: the text of such a policy stays the
    same. Nothing else in a policy can hold such a text, because its values are numbers and known words.
    """
    text = msgspec.json.encode(policy).decode()
    for default in _LEFT_OUT:
        text = text.replace(default, "")
    return text
