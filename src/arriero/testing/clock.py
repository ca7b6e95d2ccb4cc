"""A clock that is blocked until everything waits for it, then jumps to the next instant at which something is due."""

import asyncio
import heapq
from collections.abc import Callable
from itertools import count
from typing import Any

START_SECONDS = 1_000.0  # of the monotonic clock: not zero, so that nothing relies on it


class VirtualTimer:
    """A callback at an instant of the virtual clock."""

    def __init__(self, callback: Callable[[], None]) -> None:
        self.callback: Callable[[], None] | None = callback

    def cancel(self) -> None:
        """Cancel the callback."""
        self.callback = None


class VirtualClock:
    """The ``Clock`` door of the runtime.

    Loops that merely poll (``idle``) never attract a jump; they are poked after each one.
    """

    def __init__(self) -> None:
        self._now = START_SECONDS
        self._timers: list[tuple[float, int, VirtualTimer]] = []
        self._order = count()
        self._idle: set[asyncio.Future[None]] = set()
        self._sleepers = 0
        self.activity = 0  # grows with whatever happens; still while everybody waits

    def monotonic(self) -> float:
        return self._now

    def call_later(self, seconds: float, callback: Callable[[], None]) -> VirtualTimer:
        timer = VirtualTimer(callback)
        heapq.heappush(self._timers, (self._now + max(seconds, 0), next(self._order), timer))
        self.activity += 1
        return timer

    async def sleep(self, seconds: float) -> None:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        timer = self.call_later(seconds, lambda: None if future.done() else future.set_result(None))
        self._sleepers += 1
        try:
            await future
        finally:
            self._sleepers -= 1
            timer.cancel()

    def is_slept_in(self) -> bool:
        """Returns True if a caller sleeps on this clock (between two tries of a step)."""
        return self._sleepers > 0

    async def idle(self, event: asyncio.Event, seconds: float) -> None:
        poked: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._idle.add(poked)
        set_event = asyncio.ensure_future(event.wait())
        first: set[asyncio.Future[Any]] = {poked, set_event}
        try:
            await asyncio.wait(first, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._idle.discard(poked)
            set_event.cancel()

    # --- driving
    def next_timer(self) -> float | None:
        """Instant of the next callback; None: there is none."""
        while self._timers and self._timers[0][2].callback is None:
            heapq.heappop(self._timers)
        return self._timers[0][0] if self._timers else None

    def jump_to(self, instant: float) -> None:
        """Let the time be ``instant`` and call what is due."""
        self._now = max(self._now, instant)
        while (due := self.next_timer()) is not None and due <= self._now:
            callback = heapq.heappop(self._timers)[2].callback
            assert callback is not None
            callback()
        self.poke()

    def poke(self) -> None:
        """Let every polling loop make a pass."""
        self.activity += 1
        for poked in list(self._idle):
            if not poked.done():
                poked.set_result(None)
