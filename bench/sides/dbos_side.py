"""DBOS Transact, in the ways its documentation offers.

On SQLite its file is set to WAL, which lasts in the file and which it does not do itself; `synchronous` stays at SQLite's
FULL. The ways, with the widths and intervals that were fastest on two cores:

- direct: plain functions, one call after the other (2, 4 and 16 threads at once were no faster: there is one writer).
- async: coroutines, a few at a time (1, 8 and 32 were no faster).
- threads (PostgreSQL): plain functions, called from several threads at once, since a server takes many commits together.
- queue: all enqueued at once, run on a few threads. Its worker looks only now and then: more often takes the writer
  from the tasks, less often leaves the threads idle.
"""

import asyncio
import sqlite3
import time
from concurrent.futures import ThreadPoolExecutor

from common import (
    PAYLOAD,
    WARM_UP_TASKS,
    Assignment,
    assignment,
    deliver,
    durability_of,
    import_time,
    latency,
    throughput,
)
from dbos import DBOS, DBOSConfig

ASYNC_IN_FLIGHT = {"sqlite": 4, "postgres": 16}
QUEUE_THREADS = {"sqlite": 4, "postgres": 16}
THREADS = 16
QUEUE_POLLING_SECONDS = 0.25
QUEUE_RESULT_POLLING_SECONDS = 0.01
QUEUE_WARM_UP_TASKS = 4  # each may wait a polling interval


@DBOS.step()
def echo(payload: str) -> str:
    return payload


@DBOS.workflow()
def three(payload: str) -> str:
    echo(payload)
    echo(payload)
    return echo(payload)


@DBOS.step()
async def echo_async(payload: str) -> str:
    return payload


@DBOS.workflow()
async def three_async(payload: str) -> str:
    await echo_async(payload)
    await echo_async(payload)
    return await echo_async(payload)


def main() -> None:
    asked = assignment()
    if asked.work == "import":
        deliver(import_time("dbos"), {}, "dbos")
        return
    launch(asked, threads=QUEUE_THREADS[asked.store] if asked.way == "queue" else None)
    try:
        figures = WAYS[asked.work, asked.way](asked)
    finally:
        DBOS.destroy()
    deliver(figures, durability_of(asked), "dbos")


def launch(asked: Assignment, threads: int | None) -> None:
    if asked.store == "sqlite":
        connection = sqlite3.connect(asked.database)
        connection.execute("PRAGMA journal_mode=WAL")
        connection.close()
    config = DBOSConfig(name="bench", system_database_url=asked.url, log_level="WARNING")
    if threads is not None:
        config["max_executor_threads"] = threads
    DBOS(config=config)
    DBOS.launch()


def w1_direct(asked: Assignment) -> dict[str, float]:
    for _ in range(WARM_UP_TASKS):
        three(PAYLOAD)
    started_at = time.perf_counter()
    for _ in range(asked.tasks):
        three(PAYLOAD)
    return throughput(asked.tasks, started_at, time.perf_counter())


def w1_threads(asked: Assignment) -> dict[str, float]:
    with ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(three, [PAYLOAD] * WARM_UP_TASKS))
        started_at = time.perf_counter()
        list(pool.map(three, [PAYLOAD] * asked.tasks))
        return throughput(asked.tasks, started_at, time.perf_counter())


def w1_async(asked: Assignment) -> dict[str, float]:
    async def call(room: asyncio.Semaphore) -> None:
        async with room:
            await three_async(PAYLOAD)

    async def main() -> dict[str, float]:
        room = asyncio.Semaphore(ASYNC_IN_FLIGHT[asked.store])
        await asyncio.gather(*(call(room) for _ in range(WARM_UP_TASKS)))
        started_at = time.perf_counter()
        await asyncio.gather(*(call(room) for _ in range(asked.tasks)))
        return throughput(asked.tasks, started_at, time.perf_counter())

    return asyncio.run(main())


def w1_queue(asked: Assignment) -> dict[str, float]:
    queue = DBOS.register_queue("bench", polling_interval_sec=QUEUE_POLLING_SECONDS)
    for _ in range(QUEUE_WARM_UP_TASKS):  # the first one also waits until the queue has its worker
        queue.enqueue(three, PAYLOAD).get_result(polling_interval_sec=QUEUE_RESULT_POLLING_SECONDS)
    started_at = time.perf_counter()
    handles = [queue.enqueue(three, PAYLOAD) for _ in range(asked.tasks)]
    for handle in handles:
        handle.get_result(polling_interval_sec=QUEUE_RESULT_POLLING_SECONDS)
    return throughput(asked.tasks, started_at, time.perf_counter())


def w2_direct(asked: Assignment) -> dict[str, float]:
    seconds = []
    for _ in range(WARM_UP_TASKS + asked.tasks):
        started_at = time.perf_counter()
        three(PAYLOAD)
        seconds.append(time.perf_counter() - started_at)
    return latency(seconds[WARM_UP_TASKS:])


def w2_async(asked: Assignment) -> dict[str, float]:
    async def main() -> dict[str, float]:
        seconds = []
        for _ in range(WARM_UP_TASKS + asked.tasks):
            started_at = time.perf_counter()
            await three_async(PAYLOAD)
            seconds.append(time.perf_counter() - started_at)
        return latency(seconds[WARM_UP_TASKS:])

    return asyncio.run(main())


WAYS = {
    ("w1", "direct"): w1_direct,
    ("w1", "threads"): w1_threads,
    ("w1", "async"): w1_async,
    ("w1", "queue"): w1_queue,
    ("w2", "direct"): w2_direct,
    ("w2", "async"): w2_async,
}

if __name__ == "__main__":
    main()
