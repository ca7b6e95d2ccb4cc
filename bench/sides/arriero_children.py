"""arriero with child tasks: a parent with many children of one step each, beside as many tasks that are submitted."""

import asyncio
import time
from statistics import median

from arriero_app import app, one_echo, parent_of
from common import WARM_UP_TASKS

TURNS = 5  # of both, one after the other


async def children(tasks: int) -> dict[str, float]:
    """Seconds until a parent with that many children has ended, divided by those until as many submitted tasks have."""
    await _submit_all(WARM_UP_TASKS)
    await (await app.submit(parent_of(WARM_UP_TASKS))).result()
    of_submitted, of_children = [], []
    for _ in range(TURNS):
        began_at = time.perf_counter()
        await _submit_all(tasks)
        of_submitted.append(time.perf_counter() - began_at)
        began_at = time.perf_counter()
        await (await app.submit(parent_of(tasks))).result()
        of_children.append(time.perf_counter() - began_at)
    ratios = [ours / theirs for ours, theirs in zip(of_children, of_submitted, strict=True)]
    return {"ratio": median(ratios), "children": median(of_children), "submitted": median(of_submitted)}


async def _submit_all(count: int) -> None:
    submitted = await asyncio.gather(*(app.submit(one_echo(str(number))) for number in range(count)))
    await asyncio.gather(*(task.result() for task in submitted))
