"""arriero with many tasks: finished ones in the store, tasks that sleep, sleepers that wake all at once."""

import asyncio
import gc
import os
import random
import time
from itertools import count
from pathlib import Path
from statistics import median

from arriero_app import app, asleep, nap, slumber, three, wakings, warm_up, woken
from common import PAYLOAD, WARM_UP_TASKS
from filling import fill

FINISHED = (100_000, 1_000_000)  # tasks in the store when w7 measures
TURNS = 5  # of a store with so many, each beside one of an empty store: a machine's speed changes within minutes
SUBMIT_BATCH = 1_000  # sleepers submitted at once
ASLEEP_WITHIN_SECONDS = 600
SETTLE_SECONDS = 3  # after the last one fell asleep: what it recorded is committed, what it used is given back
LOOK_AT_EVERY = 1_000  # of the sleepers, to see that they are alive and not ended
LOOK_SECONDS = 0.05
DUE_WITHIN_SECONDS = 10.0  # all sleepers of w8, from the first to the last
SUBMITTED_PER_SECOND = 500  # slowly reckoned: when w8's first sleeper is due, the last one sleeps


async def w7(tasks: int, url: str) -> dict[str, float]:
    """Throughput with more and more finished tasks, each time in turn with an empty store; at last with random ids.

    Tasks are filled in while nobody runs; the App starts anew and warms up before each measurement.
    """
    empty, figures = (beside(url, number) for number in count()), {}
    await measured(url, WARM_UP_TASKS)  # leaves one to make copies of
    before, of_empty = 0, []
    for finished in FINISHED:
        fill(url, finished - before)
        before = finished
        turns = [(await measured(next(empty), tasks), await measured(url, tasks)) for _ in range(TURNS)]
        of_empty += [at_none for at_none, _ in turns]
        figures[f"at {finished:,}"] = median(at_many for _, at_many in turns)
        figures["ratio"] = median(at_many / at_none for at_none, at_many in turns)
    figures["at 0"] = median(of_empty)
    figures["random ids"] = median([await measured(url, tasks, random.Random(turn)) for turn in range(TURNS)])
    return figures


def beside(url: str, number: int) -> str:
    """Another store of the same kind, on the same disk or server."""
    return f"{url}-empty-{number}" if url.startswith("sqlite:") else f"{url}?schema=empty_{number}"


async def measured(url: str, tasks: int, source: random.Random | None = None) -> float:
    """Tasks a second of an App that has just started, and is warm."""
    async with app.running(store=url):
        await warm_up()
        return await throughput_of(tasks, source)


async def throughput_of(tasks: int, source: random.Random | None = None) -> float:
    """Tasks a second, with ids of our making or from a source of chance."""
    ids = [None if source is None else f"{source.getrandbits(96):024x}" for _ in range(tasks)]
    started_at = time.perf_counter()
    submitted = await asyncio.gather(*(app.submit(three(PAYLOAD), task_id=task_id) for task_id in ids))
    await asyncio.gather(*(task.result() for task in submitted))
    return tasks / (time.perf_counter() - started_at)


async def w8(tasks: int) -> dict[str, float]:
    """Sleepers that are all due within some seconds: how long after the last of them was due the last one has woken."""
    wakings.expect(tasks)
    first_due_in = tasks / SUBMITTED_PER_SECOND
    began_at = time.perf_counter()
    due_in = [first_due_in + DUE_WITHIN_SECONDS * index / tasks for index in range(tasks)]
    for first in range(0, tasks, SUBMIT_BATCH):
        batch = range(first, min(first + SUBMIT_BATCH, tasks))
        passed = time.perf_counter() - began_at
        await asyncio.gather(*(app.submit(nap(index, due_in[index] - passed)) for index in batch))
    if woken:
        raise SystemExit("the first ones woke before the last one was there")
    await wakings.all_there.wait()
    if len(woken) != tasks:
        raise SystemExit(f"{tasks - len(woken)} sleepers did not wake")
    over = time.perf_counter() - began_at - (first_due_in + DUE_WITHIN_SECONDS)
    return {"late": over, "throughput": tasks / (over + DUE_WITHIN_SECONDS)}


async def sleeping(tasks: int) -> dict[str, float]:
    asleep.extend(bytes(WARM_UP_TASKS + tasks))
    await put_to_sleep(range(WARM_UP_TASKS))
    before = resident_bytes()
    ids = await put_to_sleep(range(WARM_UP_TASKS, WARM_UP_TASKS + tasks))
    grown = resident_bytes() - before
    for task_id in ids:
        state = (await app.task(task_id).view()).state
        if state not in {"pending", "processing"}:
            raise SystemExit(f"sleeper {task_id} is {state}")
    return {"memory": grown / 1_000_000}


async def put_to_sleep(indexes: range) -> list[str]:
    """Submit a sleeper for each index and wait until all sleep; the ids of some of them."""
    looked_at = []
    for first in range(indexes.start, indexes.stop, SUBMIT_BATCH):
        batch = range(first, min(first + SUBMIT_BATCH, indexes.stop))
        submitted = await asyncio.gather(*(app.submit(slumber(index)) for index in batch))
        looked_at += [task.id for task in submitted[::LOOK_AT_EVERY]]
    submitted = []  # nobody holds a handle to a task that sleeps for weeks
    await wait_until_asleep(indexes)
    return looked_at


async def wait_until_asleep(indexes: range) -> None:
    """Wait until the tasks with these indexes sleep."""
    give_up_at = time.monotonic() + ASLEEP_WITHIN_SECONDS
    while not all(memoryview(asleep)[indexes.start : indexes.stop]):
        if time.monotonic() > give_up_at:
            raise SystemExit(f"{indexes.stop - sum(asleep)} sleepers did not get to their sleep")
        await asyncio.sleep(LOOK_SECONDS)
    await asyncio.sleep(SETTLE_SECONDS)
    gc.collect()


def resident_bytes() -> int:
    """Resident memory of this process now (Linux)."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")
