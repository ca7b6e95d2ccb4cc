"""Attempts and undos made by hand, for tests of plain step functions."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal, TypeVar

from ..declare.attempt import Attempt, StepTry, Undo, current_try
from ..declare.resources import Resource, open_resources
from ..model import Instant

R = TypeVar("R")
_COMPLETE_BY = Instant(4_102_444_800_000_000)  # 2100: hand-made attempts have no deadline of their own


def _given(task_id: str, number: int, remaining: float, idempotency_key: str) -> dict[str, Any]:
    return {
        "task_id": task_id,
        "step": "test",
        "number": number,
        "idempotency_key": idempotency_key,
        "complete_by": _COMPLETE_BY,
        "remaining": lambda: remaining,
    }


def attempt(
    *, task_id: str = "test", number: int = 1, remaining: float = 10.0, idempotency_key: str = "test-key"
) -> Attempt:
    """An attempt to hand to ``step.function``; ``remaining`` seconds stay as given."""
    return Attempt(**_given(task_id, number, remaining, idempotency_key))


def undo(
    result: R | None, *, outcome: Literal["completed", "unknown"] = "completed", forward_key: str = "test-key"
) -> Undo[R]:
    """An undo to hand to a compensation. ``result`` None with ``outcome="unknown"``: nobody knows whether it happened."""
    given = _given("test", 1, 10.0, "test-undo-key")
    return Undo(**given, outcome=outcome, forward_key=forward_key, result=result)


A = TypeVar("A", bound=Attempt)


@contextmanager
def current(of: A) -> Iterator[A]:
    """Make an attempt or undo the one that clients of ``arriero.http`` find, for one try of a plain step function."""
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
