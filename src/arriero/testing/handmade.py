"""Attempts, undos and callbacks made by hand, for tests of plain step functions."""

from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import Any, Literal, TypeVar

from ..declare.attempt import Attempt, StepTry, Undo, current_try
from ..declare.callbacks import Callback, CallbackAccess
from ..declare.resources import Resource, open_resources
from ..model import Instant
from ..payloads.codec import encode

T = TypeVar("T")


def run_inline(asked: Coroutine[Any, Any, T]) -> T:
    """Carry out a coroutine that waits for nothing."""
    try:
        asked.send(None)
    except StopIteration as end:
        value: T = end.value
        return value
    asked.close()
    raise AssertionError("it waits for what only the event loop could bring")


R = TypeVar("R")
CALLBACKS_URL = "https://callbacks.test/v1/callbacks/"
_COMPLETE_BY = Instant(4_102_444_800_000_000)  # 2100: hand-made attempts have no deadline of their own


class HandmadeTime:
    """The time of a hand-made attempt: ``remaining`` stays as it was given or asked for last. What is kept, is kept here."""

    def __init__(self, remaining: float, checkpointed: Any) -> None:
        self.complete_by = _COMPLETE_BY
        self.checkpoint = None if checkpointed is None else encode(checkpointed, "checkpointed")
        self.trace_headers: dict[str, str] = {}
        self._remaining = remaining
        self.published: str | None = None

    def remaining_seconds(self) -> float:
        return self._remaining

    async def extend(self, seconds: float) -> None:
        self._remaining = max(self._remaining, seconds)

    async def save_checkpoint(self, text: str) -> None:
        self.checkpoint = text

    def publish(self, text: str) -> None:
        self.published = text

    def wait_in_thread(self, asked: Coroutine[Any, Any, None], instead: str) -> None:
        run_inline(asked)


def attempt(
    *,
    task_id: str = "test",
    number: int = 1,
    remaining: float = 10.0,
    idempotency_key: str = "test-key",
    checkpointed: Any = None,
) -> Attempt:
    """An attempt to hand to ``step.function``. ``remaining`` seconds stay as given, unless the step extends them.

    ``checkpointed``: what an earlier attempt kept.
    """
    return Attempt(task_id, "test", number, idempotency_key, HandmadeTime(remaining, checkpointed))


def undo(
    result: R | None,
    *,
    outcome: Literal["completed", "unknown"] = "completed",
    forward_key: str = "test-key",
    forward_checkpointed: Any = None,
) -> Undo[R]:
    """An undo to hand to a compensation. ``result`` None with ``outcome="unknown"``: nobody knows whether it happened."""
    kept = None if forward_checkpointed is None else encode(forward_checkpointed, "forward_checkpointed")
    time = HandmadeTime(10.0, None)
    return Undo(
        "test",
        "test",
        1,
        "test-undo-key",
        time,
        outcome=outcome,
        forward_key=forward_key,
        result=result,
        forward_checkpoint=kept,
    )


def callback(name: str = "callback", *, token: str = "test-token", expires_at: datetime | None = None) -> Callback[Any]:
    """A callback to hand to ``step.function``. Its URL ends with the token, and nothing listens there."""
    return Callback(f"{name}#1", access=CallbackAccess(CALLBACKS_URL + token, token, expires_at))


A = TypeVar("A", bound=Attempt)


@contextmanager
def current(of: A) -> Iterator[A]:
    """Make an attempt or undo the one that ``current_attempt()`` and the clients of ``arriero.http`` find, for one try."""
    step_try = StepTry(of)
    token = current_try.set(step_try)
    try:
        yield of
    finally:
        step_try.end()
        current_try.reset(token)


@contextmanager
def resource(of: Resource[R], value: R) -> Iterator[R]:
    """Let ``of()`` give ``value`` while plain step functions are tested: ``with testing.resource(bank, fake): ...``."""
    token = open_resources.set({**open_resources.get({}), of: value})
    try:
        yield value
    finally:
        open_resources.reset(token)
