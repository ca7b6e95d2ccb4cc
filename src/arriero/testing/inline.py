"""Coroutines that are carried out where no event loop can turn meanwhile."""

from collections.abc import Coroutine
from typing import Any, TypeVar

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
