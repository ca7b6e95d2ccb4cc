"""Keeps the result of a plain function in a thread, even if nobody waits for it any more."""

from collections.abc import Callable
from typing import Any


class ThreadAnswer:
    """Calls a function once and keeps its result.

    The attempt's own wait is cancelled when its time is over; the thread goes on, and its answer would be dropped with
    the future that nobody waits for.
    """

    def __init__(self, function: Callable[[], Any]) -> None:
        self._function = function
        self._is_given = False
        self._value: Any = None
        self._error: BaseException | None = None

    def call(self) -> Any:
        """Runs in the thread. Raises what the function raises."""
        try:
            self._value = self._function()
        except BaseException as error:
            self._error = error
            raise
        finally:
            self._is_given = True
        return self._value

    def is_given(self) -> bool:
        """Returns True if the function has ended; False also if it never began."""
        return self._is_given

    def value(self) -> Any:
        """Return the function's result, or raise what it raised. Only once it has ended."""
        if self._error is not None:
            raise self._error
        return self._value
