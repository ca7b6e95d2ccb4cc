"""arriero, as its README shows it: everything in one process, defaults but for room for the tasks."""

import asyncio
import gc
import os
import time
from collections import defaultdict
from datetime import timedelta
from pathlib import Path

from common import (
    KEYS,
    PAYLOAD,
    WARM_UP_TASKS,
    assignment,
    deliver,
    durability_of,
    import_time,
    keyed,
    latency,
    numbers_of,
    percentile,
    throughput,
)

import arriero
from arriero import Agent, App, Attempt, workflow

SUBMIT_BATCH = 1_000  # sleepers submitted at once
ASLEEP_WITHIN_SECONDS = 600
SETTLE_SECONDS = 3  # after the last one fell asleep: what it recorded is committed, what it used is given back
LOOK_AT_EVERY = 1_000  # of the sleepers, to see that they are alive and not ended
COLD_PER_SECOND = 200  # a pace that leaves most of the machine idle when there is no hot key
HOT_PER_COLD = 10  # messages that wait for the hot key, for each cold key
WARM_UP_KEY = -1
HOT_KEY = -2

echoes = Agent("echoes", max_in_flight=1_000)
asleep = bytearray()  # one byte a task, set by the task itself
ran: defaultdict[int, list[int]] = defaultdict(list)  # by key, the numbers of messages in the order their steps ran
hot_may_run = asyncio.Event()


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


@echoes.step
async def note(attempt: Attempt, key: int, number: int) -> None:
    ran[key].append(number)


@workflow
async def handle(key: int, number: int) -> None:
    await note(key, number)


@echoes.step
async def note_hot(attempt: Attempt, number: int) -> None:
    await hot_may_run.wait()
    ran[HOT_KEY].append(number)


@workflow
async def handle_hot(number: int) -> None:
    await note_hot(number)


app = App("bench", agents=[echoes], workflows=[three, slumber, handle, handle_hot])


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


async def w5(messages: int) -> dict[str, float]:
    await send(WARM_UP_KEY, range(WARM_UP_TASKS))
    started_at = time.perf_counter()
    await asyncio.gather(*(send(key, numbers_of(key, messages)) for key in range(KEYS)))
    return keyed(messages, started_at, time.perf_counter(), ran)


async def send(key: int, numbers: range) -> None:
    """Submit the messages of a key, each when the one before it is durable, and wait for the end of all."""
    tasks = [await app.submit(handle(key, number), convoy=f"key-{key}") for number in numbers]
    for task in tasks:
        await task.result()


async def w6(cold: int) -> dict[str, float]:
    await send(WARM_UP_KEY, range(WARM_UP_TASKS))
    alone = percentile(await cold_seconds(range(cold)), 0.99)
    await queue_hot(HOT_PER_COLD * cold)
    hot_may_run.set()
    beside = percentile(await cold_seconds(range(cold, 2 * cold)), 0.99)
    ended = len(ran[HOT_KEY])
    if not 0 < ended < HOT_PER_COLD * cold:
        raise SystemExit(f"{ended} of {HOT_PER_COLD * cold} hot messages had run: not a hot key beside all of it")
    return {"p99 alone": alone * 1_000, "p99 beside": beside * 1_000, "ratio": beside / alone}


async def cold_seconds(keys: range) -> list[float]:
    """Submit one message for each key at a steady pace; how long after it was due each one ended."""

    async def one(key: int, due_at: float) -> float:
        task = await app.submit(handle(key, 0), convoy=f"key-{key}")
        await task.result()
        return time.perf_counter() - due_at

    under_way = []
    started_at = time.perf_counter()
    for index, key in enumerate(keys):
        due_at = started_at + index / COLD_PER_SECOND
        # Also when it is late already: a pace that is not kept up counts as latency, it does not thin out the load.
        await asyncio.sleep(max(0.0, due_at - time.perf_counter()))
        under_way.append(asyncio.create_task(one(key, due_at)))
    return await asyncio.gather(*under_way)


async def queue_hot(messages: int) -> None:
    """Let messages wait for the hot key: its first one does not end before ``hot_may_run``."""
    for first in range(0, messages, SUBMIT_BATCH):
        batch = range(first, min(first + SUBMIT_BATCH, messages))
        await asyncio.gather(*(app.submit(handle_hot(number), convoy="hot") for number in batch))


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


WORKS = {"w1": w1, "w2": w2, "w5": w5, "w6": w6, "sleeping": sleeping}

if __name__ == "__main__":
    main()
