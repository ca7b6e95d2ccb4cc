"""A contender for a lease, with the real mutex, whose work lasts until it is cancelled."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from arriero.leases import DistributedMutex, Leadership, Lease


class Contender:
    """A mutex that runs.

    Attributes:
        elected: each leadership as it begins.
        lost: each leadership that was lost, and why.
    """

    def __init__(self, lease: Lease, duration: float) -> None:
        self.elected: asyncio.Queue[Leadership] = asyncio.Queue()
        self.lost: asyncio.Queue[tuple[Leadership, str]] = asyncio.Queue()
        self.mutex = DistributedMutex(
            lease,
            duration=duration,
            on_elected=self.elected.put_nowait,
            on_lost=lambda leadership, why: self.lost.put_nowait((leadership, why)),
        )

    async def work(self, leadership: Leadership) -> None:
        """Work until it is cancelled."""
        await asyncio.Event().wait()


@asynccontextmanager
async def contending(lease: Lease, duration: float) -> AsyncIterator[Contender]:
    """A contender for one block."""
    contender = Contender(lease, duration)
    running = asyncio.ensure_future(contender.mutex.run(contender.work))
    try:
        yield contender
    finally:
        contender.mutex.stop()
        await running
