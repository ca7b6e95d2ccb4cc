"""A mutex that is cancelled ends, at whatever step the cancellation meets it."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from store_world import TestClock

from arriero.leases import DistributedMutex, Leadership
from arriero.leases.store import StoreLease
from arriero.store.contract import StateStore
from arriero.store.memory import MemoryStore


@pytest.mark.parametrize("steps", range(12))
async def test_a_mutex_that_is_cancelled_while_its_work_ends_ends_as_well(steps: int) -> None:
    store = MemoryStore(clock=TestClock())
    await store.open()

    async def share() -> tuple[StateStore, Callable[[], Awaitable[None]]]:
        return store, _keep_open

    ended = asyncio.Event()

    async def work(leadership: Leadership) -> None:
        ended.set()

    mutex = DistributedMutex(StoreLease(share, "orders", store.url), duration=60)
    running = asyncio.get_running_loop().create_task(mutex.run(work))
    await ended.wait()
    for _ in range(steps):  # turns of the event loop
        await asyncio.sleep(0)
    running.cancel()
    done, _ = await asyncio.wait((running,), timeout=10)
    assert done, "it goes on"
    assert running.cancelled()
    await store.close()


async def _keep_open() -> None:
    """The test closes the store."""
