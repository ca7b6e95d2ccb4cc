"""The first argument of a step, its attempt, and of a compensation, its undo."""

from collections.abc import Coroutine, Mapping
from contextvars import ContextVar
from datetime import datetime
from types import MappingProxyType
from typing import Any, Generic, Literal, Protocol, TypeVar

import msgspec

from ..errors import InvalidInput
from ..model import Instant
from ..model.instants import as_datetime
from ..model.policies import Duration, check_seconds
from ..model.progress import PUBLISHED_BYTES_MAX
from ..payloads import codec

R_co = TypeVar("R_co", covariant=True)


class AttemptHandle(Protocol):
    """The run of an attempt, as ``Attempt`` sees it."""

    @property
    def complete_by(self) -> Instant:
        """The deadline by the store's clock."""
        ...

    @property
    def checkpoint(self) -> str | None:
        """Last checkpoint of this attempt, or of one before it, as JSON text."""
        ...

    @property
    def trace_headers(self) -> Mapping[str, str]:
        """Headers of W3C Trace Context; empty: the task has no trace."""
        ...

    def remaining_seconds(self) -> float:
        """Seconds until the deadline by this process's clock; below 0 once it has passed."""
        ...

    async def extend(self, seconds: float) -> None: ...

    async def save_checkpoint(self, text: str) -> None: ...

    def publish(self, text: str) -> None: ...

    def wait_in_thread(self, asked: Coroutine[Any, Any, None], instead: str) -> None:
        """Wait for one of the coroutines above in the thread of a plain function. ``instead``: what async code calls."""
        ...


class Attempt:
    """One attempt of a step: who asks, under which key, and until when an answer counts."""

    __slots__ = ("_handle", "_idempotency_key", "_number", "_step", "_task_id")

    def __init__(self, task_id: str, step: str, number: int, idempotency_key: str, handle: AttemptHandle) -> None:
        self._task_id = task_id
        self._step = step
        self._number = number
        self._idempotency_key = idempotency_key
        self._handle = handle

    @property
    def task_id(self) -> str:
        """The task's business id."""
        return self._task_id

    @property
    def step(self) -> str:
        """The step's name, with its key where it has one."""
        return self._step

    @property
    def number(self) -> int:
        """1 for the first attempt; a lost process does not count."""
        return self._number

    @property
    def idempotency_key(self) -> str:
        """The same for all attempts and tries of this step: send it, so that the service does it once."""
        return self._idempotency_key

    @property
    def complete_by(self) -> datetime:
        """Deadline of the attempt, by the store's clock; ``extend`` moves it."""
        return as_datetime(self._handle.complete_by)

    @property
    def remaining(self) -> float:
        """Seconds left until then; 0 when it has passed. Give it to your client as its timeout."""
        return max(0.0, self._handle.remaining_seconds())

    async def extend(self, within: Duration) -> float:
        """Ask for more time: the attempt must have ended ``within`` seconds (or a timedelta) from now. Says that it continues.

        It never shortens the time, and never goes past the step's ``extend_max``. Each call is a commit: call it when a third
        of the time is left, not in a tight loop.

        Returns: the seconds that remain; fewer than asked for at ``extend_max``.
        Raises: AttemptOver - the time had passed, or the attempt is not this process's any longer: nothing that it does counts;
            InvalidInput - no duration.
        """
        await self._handle.extend(check_seconds(within, "extend", at_least=0.001))
        return self.remaining

    def extend_sync(self, within: Duration) -> float:
        """``extend`` for plain functions."""
        seconds = check_seconds(within, "extend", at_least=0.001)
        self._handle.wait_in_thread(self._handle.extend(seconds), "await attempt.extend(...)")
        return self.remaining

    async def checkpoint(self, value: Any) -> None:
        """Keep a value for the attempts after this one, which read it as ``checkpointed``. It is durable when this returns.

        Each call replaces the last value. It is not a result, and is dropped when an operator edits the step's arguments.

        Raises: InvalidInput - no JSON form, or over the limits of payloads; AttemptOver - as ``extend``.
        """
        await self._handle.save_checkpoint(codec.encode_untyped(value, f"checkpoint of {self._step}"))

    def checkpoint_sync(self, value: Any) -> None:
        """``checkpoint`` for plain functions."""
        text = codec.encode_untyped(value, f"checkpoint of {self._step}")
        self._handle.wait_in_thread(self._handle.save_checkpoint(text), "await attempt.checkpoint(...)")

    @property
    def checkpointed(self) -> Any:
        """Last value that this attempt or one before it saved by ``checkpoint``, as plain JSON values; None: there is none."""
        return decode_checkpoint(self._handle.checkpoint)

    def publish(self, value: Any) -> None:
        """Publish how far the step is, for ``task.view()``, status pages and reply queues. The latest value counts.

        It returns immediately, also in plain functions and their threads. Values are merged: at most one a second is written
        and the last one is written before, or with, the report. After the end of the attempt it changes nothing.

        Args:
            value: anything that has a JSON form, up to 10 kB.
        Raises: InvalidInput - it cannot be recorded, or is too large.
        """
        self._handle.publish(encode_published(value, f"what step {self._step} publishes"))

    @property
    def headers(self) -> Mapping[str, str]:
        """HTTP headers that carry the key and the task, and ``traceparent`` if the task has a trace."""
        return MappingProxyType(
            {
                "Idempotency-Key": self._idempotency_key,
                "Arriero-Task": self._task_id.encode("ascii", "backslashreplace").decode(),
                **self._handle.trace_headers,
            }
        )


def encode_published(value: Any, what: str) -> str:
    """Encode a value to be published, as JSON text. Raises InvalidInput - it cannot be recorded, or is too large."""
    text = codec.encode_untyped(value, what)
    if (size := len(text.encode())) > PUBLISHED_BYTES_MAX:
        raise InvalidInput(
            f"{what} has {size:,} bytes as JSON; at most {PUBLISHED_BYTES_MAX:,} are kept: publish a summary, and return"
            " the rest as a result"
        )
    return text


def decode_checkpoint(text: str | None) -> Any:
    """Decode a checkpoint into plain JSON values; None: there is none."""
    return None if text is None else msgspec.json.decode(text)


class Undo(Attempt, Generic[R_co]):
    """One attempt of a compensation."""

    __slots__ = ("_forward_checkpoint", "_forward_key", "_outcome", "_result")

    def __init__(
        self,
        task_id: str,
        step: str,
        number: int,
        idempotency_key: str,
        handle: AttemptHandle,
        *,
        outcome: Literal["completed", "unknown"],
        forward_key: str,
        result: R_co | None,
        forward_checkpoint: str | None = None,
    ) -> None:
        super().__init__(task_id, step, number, idempotency_key, handle)
        self._forward_checkpoint = forward_checkpoint
        self._outcome: Literal["completed", "unknown"] = outcome
        self._forward_key = forward_key
        self._result = result

    @property
    def outcome(self) -> Literal["completed", "unknown"]:
        """Says if the step definitely happened, or if this is unknown."""
        return self._outcome

    @property
    def forward_key(self) -> str:
        """The key the step was sent under: undo what stands under it, and bar it from landing later."""
        return self._forward_key

    @property
    def result(self) -> R_co | None:
        """The step's result; None when the outcome is unknown."""
        return self._result

    @property
    def forward_checkpointed(self) -> Any:
        """Last value that the step's own attempts saved by ``checkpoint``, also if the step is in doubt; None: there is none."""
        return decode_checkpoint(self._forward_checkpoint)


class StepTry:
    """One call of a step's function, and what it has sent so far.

    Clients note each request here that may have an effect, before they send it. They take it back if it definitely did not
    happen. So an error that says "definitely did not happen" can be judged by all requests of the try. The function may use
    several tasks and threads at the same time; each method is one operation on a dict or a list.
    """

    __slots__ = ("_claims", "_requests", "attempt", "is_over", "tags")

    def __init__(self, attempt: Attempt, tags: str | None = None) -> None:
        self.attempt = attempt
        self.tags = tags  # of its task, for logs
        self.is_over = False
        self._requests: dict[object, str] = {}  # that may have happened, in the order of their beginnings
        self._claims: list[Exception] = []  # errors that say that nothing of this try has happened

    def begin_request(self, name: str) -> object:
        """Note a request that may have an effect. Returns: what ``withdraw_request`` takes."""
        token = object()
        self._requests[token] = name
        return token

    def withdraw_request(self, token: object) -> None:
        """Take a request back that definitely did not happen."""
        self._requests.pop(token, None)

    def find_request(self) -> str | None:
        """Return the name of a request that may have happened; None if there is none."""
        for name in self._requests.copy().values():
            return name
        return None

    def note_not_happened(self, error: Exception) -> None:
        """Note an error that says: nothing of this try has happened. It was true when the error was made."""
        self._claims.append(error)

    def is_refuted(self, error: Exception) -> bool:
        """Returns True if ``error`` was noted as such a claim, and a request that began later may have happened."""
        return bool(self._requests) and any(claim is error for claim in self._claims)

    def end(self) -> None:
        """The function has returned, or nobody waits for it any longer."""
        self.is_over = True


current_try: ContextVar[StepTry | None] = ContextVar("arriero_current_try", default=None)
