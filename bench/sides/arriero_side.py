"""arriero, as its README shows it: everything in one process, defaults but for room for the tasks."""

import asyncio
import gc
import os
import time
from datetime import timedelta
from pathlib import Path

from common import (
    PAYLOAD,
    WARM_UP_TASKS,
    assignment,
    deliver,
    durability_of,
    import_time,
    latency,
    throughput,
)

import arriero
from arriero import Agent, App, Attempt, workflow

SUBMIT_BATCH = 1_000  # sleepers submitted at once
ASLEEP_WITHIN_SECONDS = 600
SETTLE_SECONDS = 3  # after the last one fell asleep: what it recorded is committed, what it used is given back
LOOK_AT_EVERY = 1_000  # of the sleepers, to see that they are alive and not ended

echoes = Agent("echoes", max_in_flight=1_000)
asleep = bytearray()  # one byte a task, set by the task itself


@echoes.step
async def echo(attempt: Attempt, payload: str) -> str:
    return payload


@workflow
async def three(payload: str) -> str:
    await echo(payload)
    await echo(payload)
    return await echo(payload)


@workflow
async def slumber(index: int) -> None:
    asleep[index] = 1
    await arriero.sleep(timedelta(days=30))


app = App("bench", agents=[echoes], workflows=[three, slumber])


def main() -> None:
    asked = assignment()
    if asked.work == "import":
        deliver(import_time("arriero"), {}, "arriero")
        return
    figures = asyncio.run(run(asked.work, asked.url, asked.tasks))
    deliver(figures, durability_of(asked), "arriero")


async def run(work: str, url: str, tasks: int) -> dict[str, float]:
    async with app.running(store=url):
        return await WORKS[work](tasks)


async def w1(tasks: int) -> dict[str, float]:
    await finish(WARM_UP_TASKS)
    started_at = time.perf_counter()
    await finish(tasks)
    return throughput(tasks, started_at, time.perf_counter())


async def finish(tasks: int) -> None:
    submitted = await asyncio.gather(*(app.submit(three(PAYLOAD)) for _ in range(tasks)))
    await asyncio.gather(*(task.result() for task in submitted))


async def w2(tasks: int) -> dict[str, float]:
    seconds = []
    for _ in range(WARM_UP_TASKS + tasks):
        started_at = time.perf_counter()
        task = await app.submit(three(PAYLOAD))
        await task.result()
        seconds.append(time.perf_counter() - started_at)
    return latency(seconds[WARM_UP_TASKS:])


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
    give_up_at = time.monotonic() + ASLEEP_WITHIN_SECONDS
    while not all(memoryview(asleep)[indexes.start : indexes.stop]):
        if time.monotonic() > give_up_at:
            raise SystemExit(f"{indexes.stop - sum(asleep)} sleepers did not get to their sleep")
        await asyncio.sleep(0.2)
    await asyncio.sleep(SETTLE_SECONDS)
    gc.collect()
    return looked_at


def resident_bytes() -> int:
    """Resident memory of this process now (Linux)."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


WORKS = {"w1": w1, "w2": w2, "sleeping": sleeping}

if __name__ == "__main__":
    main()
