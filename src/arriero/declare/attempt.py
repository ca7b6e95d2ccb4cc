"""The first argument of a step, its attempt, and of a compensation, its undo."""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from types import MappingProxyType
from typing import Generic, Literal, TypeVar

from ..model import Instant

R_co = TypeVar("R_co", covariant=True)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def as_datetime(instant: Instant) -> datetime:
    """An instant as an aware datetime in UTC."""
    return EPOCH + timedelta(microseconds=instant)


def as_instant(when: datetime) -> Instant:
    """The instant of an aware datetime."""
    return Instant((when - EPOCH) // timedelta(microseconds=1))


class Attempt:
    """One attempt of a step: who asks, under which key, and until when an answer counts."""

    __slots__ = ("_complete_by", "_idempotency_key", "_number", "_remaining", "_step", "_task_id")

    def __init__(
        self,
        task_id: str,
        step: str,
        number: int,
        idempotency_key: str,
        complete_by: Instant,
        remaining: Callable[[], float],
    ) -> None:
        self._task_id = task_id
        self._step = step
        self._number = number
        self._idempotency_key = idempotency_key
        self._complete_by = complete_by
        self._remaining = remaining

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
        """Deadline of the attempt, by the store's clock."""
        return as_datetime(self._complete_by)

    @property
    def remaining(self) -> float:
        """Seconds left until then; 0 when it has passed. Give it to your client as its timeout."""
        return max(0.0, self._remaining())

    @property
    def headers(self) -> Mapping[str, str]:
        """HTTP headers that carry the key and the task."""
        return MappingProxyType(
            {
                "Idempotency-Key": self._idempotency_key,
                "Arriero-Task": self._task_id.encode("ascii", "backslashreplace").decode(),
            }
        )


class Undo(Attempt, Generic[R_co]):
    """One attempt of a compensation."""

    __slots__ = ("_forward_key", "_outcome", "_result")

    def __init__(
        self,
        task_id: str,
        step: str,
        number: int,
        idempotency_key: str,
        complete_by: Instant,
        remaining: Callable[[], float],
        *,
        outcome: Literal["completed", "unknown"],
        forward_key: str,
        result: R_co | None,
    ) -> None:
        super().__init__(task_id, step, number, idempotency_key, complete_by, remaining)
        self._outcome: Literal["completed", "unknown"] = outcome
        self._forward_key = forward_key
        self._result = result

    @property
    def outcome(self) -> Literal["completed", "unknown"]:
        """Says if the step surely happened, or if this is unknown."""
        return self._outcome

    @property
    def forward_key(self) -> str:
        """The key the step was sent under: undo what stands under it, and bar it from landing later."""
        return self._forward_key

    @property
    def result(self) -> R_co | None:
        """The step's result; None when the outcome is unknown."""
        return self._result
