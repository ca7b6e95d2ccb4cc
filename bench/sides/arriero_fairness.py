"""arriero under a flood of tasks: what a task of high priority and the Supervisor wait for."""

import asyncio
import time
from collections.abc import Awaitable, Callable

from arriero_app import app, finish, hung_at, hung_once, three, warm_up
from common import HANGS_SECONDS, PAYLOAD, percentile

ALONE = 30  # tasks of high priority before the flood
HUNG_ALONE = 3


async def flood(tasks: int) -> dict[str, float]:
    """W1, and beside it one task of priority 9 after the other, and one after the other whose attempt passes its deadline."""
    await warm_up()
    alone = [await high_seconds() for _ in range(ALONE)]
    overdue_alone = [await overdue_seconds() for _ in range(HUNG_ALONE)]
    flooding = asyncio.create_task(finish(tasks))
    beside, overdue = await asyncio.gather(until_over(flooding, high_seconds), until_over(flooding, overdue_seconds))
    await flooding
    return {
        "high p99": percentile(beside, 0.99) * 1_000,
        "high p50": percentile(beside, 0.5) * 1_000,
        "high p50 alone": percentile(alone, 0.5) * 1_000,
        "overdue": max(overdue) * 1_000,
        "overdue alone": max(overdue_alone) * 1_000,
    }


async def until_over(flooding: asyncio.Task[None], one: Callable[[], Awaitable[float]]) -> list[float]:
    """What each took that began while the flood lasted."""
    taken = []
    while not flooding.done():
        taken.append(await one())
    return taken


async def high_seconds() -> float:
    """From submit to result."""
    started_at = time.perf_counter()
    await (await app.submit(three(PAYLOAD), priority=9)).result()
    return time.perf_counter() - started_at


async def overdue_seconds() -> float:
    """From about the deadline of an attempt that says nothing to the beginning of the next one, which the Supervisor asked for."""
    hung_at.clear()
    await (await app.submit(hung_once(), priority=9)).result()
    return hung_at[1] - hung_at[0] - HANGS_SECONDS
