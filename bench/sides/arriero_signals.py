"""arriero with tasks that wait for signals: from a signal to the code, beside the way of a step, and what waiting costs."""

import asyncio
import gc
import time
import warnings
from statistics import median

from arriero_app import app, asleep, await_signal, go, two_notes, went
from arriero_masses import ASLEEP_WITHIN_SECONDS, SETTLE_SECONDS, SUBMIT_BATCH, resident_bytes
from common import WARM_UP_TASKS

from arriero import Task

WAITING = 1_000  # tasks that wait, each of which gets a signal
WAYS = 1_000  # of steps, in turn with the signals
LOOK_SECONDS = 0.05


async def signals(tasks: int) -> dict[str, float]:
    """The p50 from ``send`` to the code, that of a step's way, and their ratio; what ``tasks`` waiting tasks cost.

    A step's way begins where the code asks for a step that does nothing, and ends where the code has its result.
    """
    warnings.simplefilter("ignore", UserWarning)  # the code of these workflows looks at the clock, to be measured
    await put_to_wait(range(WARM_UP_TASKS))
    waiting = await put_to_wait(range(WARM_UP_TASKS, WARM_UP_TASKS + WAITING))
    of_signals, of_steps = [], []
    for index, task in enumerate(waiting, WARM_UP_TASKS):
        began_at = time.perf_counter()
        await task.send(go(index))
        await task.result()
        of_signals.append(went[index] - began_at)
        number = -1 - index
        await app.execute(two_notes(number))
        of_steps.append(went[number] - went[number, "asks"])
    before = resident_bytes()
    await put_to_wait(range(WARM_UP_TASKS + WAITING, WARM_UP_TASKS + WAITING + tasks))
    grown = resident_bytes() - before
    in_signal, in_step = median(of_signals) * 1_000, median(of_steps) * 1_000
    return {"ratio": in_signal / in_step, "signal p50": in_signal, "step p50": in_step, "memory": grown / 1_000_000}


async def put_to_wait(indexes: range) -> list[Task[None]]:
    """Submit a task for each index, and wait until all are put down."""
    handles: list[Task[None]] = []
    asleep.extend(bytes(indexes.stop - len(asleep)))
    for first in range(indexes.start, indexes.stop, SUBMIT_BATCH):
        batch = range(first, min(first + SUBMIT_BATCH, indexes.stop))
        submitted = await asyncio.gather(*(app.submit(await_signal(index)) for index in batch))
        handles += submitted[: WAITING - len(handles)]  # nobody holds a handle to the others
    submitted = []
    give_up_at = time.monotonic() + ASLEEP_WITHIN_SECONDS
    while not all(memoryview(asleep)[indexes.start : indexes.stop]):
        if time.monotonic() > give_up_at:
            raise SystemExit("tasks did not get to their wait")
        await asyncio.sleep(LOOK_SECONDS)
    await asyncio.sleep(SETTLE_SECONDS)
    gc.collect()
    return handles
