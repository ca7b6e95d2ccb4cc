"""The only helper of tests that reads the machine's clock: it waits for an event, and fails if the event never comes.

How long something takes says how busy the machine is. So no test compares a count or a duration with time that has passed;
``tests/test_real_clocks.py`` checks that.
"""

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

T = TypeVar("T")
HANGS_AFTER_SECONDS = 120.0  # much longer than any wait takes on a busy machine
PAUSE_SECONDS = 0.01


class HangLimit:
    """When a wait that begins now counts as hanging.

    Args:
        what: is waited for; the failure names it.
    """

    def __init__(self, what: str, seconds: float = HANGS_AFTER_SECONDS) -> None:
        self._what = what
        self._hangs_at = time.monotonic() + seconds

    def is_over(self) -> bool:
        return time.monotonic() > self._hangs_at

    def check(self) -> None:
        """Fails if the wait hangs."""
        assert not self.is_over(), f"waited in vain for {self._what}"


def wait_until(question: Callable[[], object], what: str = "a condition") -> None:
    """Wait until something that another thread or process does is so."""
    limit, pause = HangLimit(what), threading.Event()
    while not question():
        limit.check()
        pause.wait(PAUSE_SECONDS)


async def wait_until_async(question: Callable[[], object], what: str = "a condition") -> None:
    """Wait until something is so. The event loop runs meanwhile."""
    limit = HangLimit(what)
    while not question():
        limit.check()
        await asyncio.sleep(PAUSE_SECONDS)


async def call_until_answered(call: Callable[[], Awaitable[T]], refusal: type[Exception]) -> T:
    """Repeat a call while it raises ``refusal``. Returns its first answer."""
    limit = HangLimit("an answer")
    while True:
        try:
            return await asyncio.wait_for(call(), HANGS_AFTER_SECONDS)
        except refusal:
            if limit.is_over():
                raise
        await asyncio.sleep(PAUSE_SECONDS)
