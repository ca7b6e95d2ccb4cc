"""arriero's convoys: strict order per key, and what a hot key does to cold ones."""

import asyncio
import time

from arriero_app import HOT_KEY, app, handle, handle_hot, hot_may_run, ran
from common import KEYS, WARM_UP_TASKS, keyed, numbers_of, paced, percentile

SUBMIT_BATCH = 1_000  # messages submitted at once
COLD_PER_SECOND = 200  # a pace that leaves most of the machine idle when there is no hot key
HOT_PER_COLD = 10  # messages that wait for the hot key, for each cold key
WARM_UP_KEY = -1


async def w5(messages: int) -> dict[str, float]:
    await send(WARM_UP_KEY, range(WARM_UP_TASKS))
    started_at = time.perf_counter()
    await asyncio.gather(*(send(key, numbers_of(key, messages)) for key in range(KEYS)))
    return keyed(messages, started_at, time.perf_counter(), ran)


async def send(key: int, numbers: range) -> None:
    """Submit the messages of a key, each when the one before it is durable, and wait for the last one's end.

    The others have ended then; who looks whether each of them ran is ``keyed``.
    """
    task = None
    for number in numbers:
        task = await app.submit(handle(key, number), convoy=f"key-{key}")
    if task is not None:
        await task.result()


async def cold(keys: int) -> dict[str, float]:
    await send(WARM_UP_KEY, range(WARM_UP_TASKS))
    alone = percentile(await cold_seconds(range(keys)), 0.99)
    await queue_hot(HOT_PER_COLD * keys)
    hot_may_run.set()
    beside = percentile(await cold_seconds(range(keys, 2 * keys)), 0.99)
    ended = len(ran[HOT_KEY])
    if not 0 < ended < HOT_PER_COLD * keys:
        raise SystemExit(f"{ended} of {HOT_PER_COLD * keys} hot messages had run: not a hot key beside all of it")
    return {"p99 alone": alone * 1_000, "p99 beside": beside * 1_000, "ratio": beside / alone}


async def cold_seconds(keys: range) -> list[float]:
    """Submit one message for each key at a steady pace; how long after it was due each one ended."""

    async def one(index: int) -> None:
        task = await app.submit(handle(keys[index], 0), convoy=f"key-{keys[index]}")
        await task.result()

    return await paced(len(keys), COLD_PER_SECOND, one)


async def queue_hot(messages: int) -> None:
    """Let messages wait for the hot key: its first one does not end before ``hot_may_run``."""
    for first in range(0, messages, SUBMIT_BATCH):
        batch = range(first, min(first + SUBMIT_BATCH, messages))
        await asyncio.gather(*(app.submit(handle_hot(number), convoy="hot") for number in batch))
