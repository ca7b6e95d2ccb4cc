"""Graceful shutdown of the server: requests that wait end at once, requests that work finish."""

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

from .gate_problems import build_shutdown_problem

T = TypeVar("T")
GRACE_SECONDS = 0.5  # for a request that only reads and is about to end by itself


class ShutdownSignal:
    """Flag that tells requests which wait for news that the server is about to end."""

    def __init__(self) -> None:
        self._event = asyncio.Event()

    def begin(self) -> None:
        """Set the flag. Requests that wait for news are answered now."""
        self._event.set()

    @property
    def has_begun(self) -> bool:
        """Returns True once the server is about to end."""
        return self._event.is_set()

    def refuse_if_begun(self) -> None:
        """Raises Problem (stopping) - the server is about to end."""
        if self.has_begun:
            raise build_shutdown_problem()

    async def wait(self) -> None:
        """Wait until the server is about to end. A route that waits for news waits for this too, and ends at once."""
        await self._event.wait()

    async def run_until_begun(self, work: Awaitable[T]) -> T:
        """Run what changes nothing, so that it may be cut short when the server ends. Raises Problem (stopping)."""
        running = asyncio.ensure_future(work)
        ending = asyncio.ensure_future(self._event.wait())
        try:
            await asyncio.wait({running, ending}, return_when=asyncio.FIRST_COMPLETED)
            if not running.done():
                await asyncio.wait({running}, timeout=GRACE_SECONDS)
            if not running.done():
                raise build_shutdown_problem()
            return running.result()
        finally:
            ending.cancel()
            running.cancel()
