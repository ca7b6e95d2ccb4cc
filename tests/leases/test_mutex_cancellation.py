"""A mutex that is cancelled ends, at whatever step the cancellation meets it."""

import asyncio

import pytest
from store_world import TestClock

from arriero.leases import DistributedMutex, Leadership
from arriero.leases.store import StoreLease
from arriero.store.memory import MemoryStore


@pytest.mark.parametrize("steps", range(12))
async def test_a_mutex_that_is_cancelled_while_its_work_ends_ends_as_well(steps: int) -> None:
    store = MemoryStore(clock=TestClock())
    await store.open()

    ended = asyncio.Event()

    async def work(leadership: Leadership) -> None:
        ended.set()

    mutex = DistributedMutex(StoreLease(lambda: store, "orders", is_shared=True), duration=60)
    running = asyncio.get_running_loop().create_task(mutex.run(work))
    await ended.wait()
    for _ in range(steps):  # turns of the event loop
        await asyncio.sleep(0)
    running.cancel()
    done, _ = await asyncio.wait((running,), timeout=60)
    assert done, "it goes on"
    assert running.cancelled()
    await store.close()
