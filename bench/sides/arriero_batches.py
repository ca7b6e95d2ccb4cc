"""arriero with batches: messages of one hot key, each handled by its own task, beside the same in batches of 100."""

import asyncio
import time
from statistics import median

from arriero_app import app, batch_of_key, one_of_key
from common import WARM_UP_TASKS

from arriero.declare.workflows import WorkflowCall

TURNS = 5  # of both, one after the other


async def batches(tasks: int) -> dict[str, float]:
    """Messages a second of one key from the first submission to the last end, in batches, and one task after the other."""
    alone, together = [], []
    for turn in range(TURNS + 1):
        count = tasks if turn else WARM_UP_TASKS
        alone.append(count / await _take_time(f"alone-{turn}", [one_of_key([at]) for at in range(count)]))
        together.append(count / await _take_time(f"batch-{turn}", [batch_of_key([at]) for at in range(count)]))
    ratios = [ours / theirs for ours, theirs in zip(together[1:], alone[1:], strict=True)]
    return {"ratio": median(ratios), "batches": median(together[1:]), "one by one": median(alone[1:])}


async def _take_time(key: str, calls: list[WorkflowCall[int]]) -> float:
    began_at = time.perf_counter()
    submitted = await asyncio.gather(*(app.submit(call, convoy=key) for call in calls))
    await asyncio.gather(*(task.result() for task in submitted))
    return time.perf_counter() - began_at
