"""Loops that must not end: their names, and a guard that keeps them going after an exception.

A loop that dies of an exception leaves a process that looks alive and does not work. So each turn of a loop runs under a
``LoopGuard``: what it raises is reported to the log, now and again, and the next turn begins again. Every loop has its name in
``Loop``; ``tests/runtime/test_loops.py`` raises in every one of them.
"""

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from enum import StrEnum
from types import TracebackType
from typing import Any

from ..errors import StoreError

logger = logging.getLogger("arriero")

EVERY_SECONDS = 10.0


class Loop(StrEnum):
    """Each kind of loop, by its name in the log."""

    LEASE = "lease"  # renews the process's lease, in a thread
    POLL = "poll"  # asks the store what is due
    LEADER = "leader"  # keeps the Supervisors' lease
    RECOVERY = "recovery"  # the Supervisor's passes
    UPKEEP = "upkeep"
    SCHEDULES = "schedules"  # submits the runs that are due
    METRICS = "metrics"  # writes what was counted of Agents' calls
    ALERTS = "alerts"
    COMMITTER = "committer"
    REREADING = "rereading"
    FREEING = "freeing"  # of what a lost process held
    NODE = "node"  # begins again when the process was declared lost
    WAITING = "waiting"  # asks the store whether tasks have ended that a caller waits for
    FOLLOWING = "following"  # asks the store whether tasks have changed that a caller follows
    STORE_THREAD = "store thread"  # owns a connection
    LISTENER = "listener"  # wake-ups of PostgreSQL
    WATCHDOG = "watchdog"  # ends waits for servers that do not answer
    LOOP_WATCH = "loop watch"  # looks whether the event loop continues, in a thread


class WarningThrottle:
    """Rate limit for the log of one kind of trouble that may last. ``monotonic``: seconds."""

    def __init__(self, logger: logging.Logger, monotonic: Callable[[], float]) -> None:
        self._logger = logger
        self._monotonic = monotonic
        self._next_at = float("-inf")

    def warn(self, message: str, error: Exception, *, unexpected: bool = False) -> None:
        """Log a warning, unless the last one is younger than ``EVERY_SECONDS``.

        Args:
            message: with one ``%s``.
            unexpected: it is logged as an error, with its traceback.
        """
        now = self._monotonic()
        if now >= self._next_at:
            self._next_at = now + EVERY_SECONDS
            level = logging.ERROR if unexpected else logging.WARNING
            self._logger.log(level, message, error, exc_info=error if unexpected else None)

    def reset(self) -> None:
        """Note that the trouble is over: the next one is logged immediately."""
        self._next_at = float("-inf")


class LoopGuard:
    """Goes around each turn of a loop: ``with guard: await self._turn()``. Cancellation passes.

    Args:
        loop: named in the log when a turn raises what nobody expected.
        monotonic: seconds.
        unanswered: what is logged when the store did not answer; with one ``%s``.
    """

    def __init__(self, loop: Loop, monotonic: Callable[[], float], *, unanswered: str = "") -> None:
        self._message = f"the loop {loop} continues after an unexpected error in one turn of it: %r"
        self._unanswered = unanswered
        self._monotonic = monotonic
        self._troubles: tuple[WarningThrottle, WarningThrottle] | None = None  # most loops have none
        self._is_troubled = False  # whether something was logged since the last turn that raised nothing
        self.failed = False  # whether the last turn raised

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool:
        self.failed = isinstance(error, Exception)
        if not isinstance(error, Exception):
            if error is None and self._is_troubled and self._troubles is not None:
                self._is_troubled = False
                for trouble in self._troubles:
                    trouble.reset()
            return False
        with suppress(Exception):  # what cannot be known must not end the loop either
            self.tell(error)
        return True

    def tell(self, error: Exception) -> None:
        """Log what a turn raised, unless that was done a moment ago."""
        self._is_troubled = True
        if self._troubles is None:
            self._troubles = WarningThrottle(logger, self._monotonic), WarningThrottle(logger, self._monotonic)
        unanswered, unexpected = self._troubles
        if isinstance(error, StoreError) and self._unanswered:
            unanswered.warn(self._unanswered, error)
        else:
            unexpected.warn(self._message, error, unexpected=True)


def drop_silently(task: "asyncio.Task[Any]") -> None:
    """Let a task that has not ended be collected without asyncio's log line. asyncio has no public way to say so."""
    task._log_destroy_pending = False  # type: ignore[attr-defined]
