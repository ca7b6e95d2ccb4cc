"""DBOS Transact, in the ways its documentation offers.

On SQLite its file is set to WAL, which lasts in the file and which it does not do itself; `synchronous` stays at SQLite's
FULL. The ways, with the widths and intervals that were fastest on two cores:

- direct: plain functions, one call after the other (2, 4 and 16 threads at once were no faster: there is one writer).
- async: coroutines, a few at a time (1, 8 and 32 were no faster).
- threads (PostgreSQL): plain functions, called from several threads at once, since a server takes many commits together.
- queue: all enqueued at once, run on a few threads. Its worker looks only now and then: more often takes the writer
  from the tasks, less often leaves the threads idle.

In w5 a partitioned queue handles one workflow of each key at a time (`partition_concurrency=1`, which its worker claims for
all keys in one statement). Within a key it goes by the time of creation, then by id. On SQLite under Python 3.11 that time
is in whole seconds, and up to 709 of 2,000 messages ran out of order; so each message has an id of its own that sorts as
it was sent, which costs nothing. The ways to send, each faster than one thread that enqueues message after message:

- threads: several threads, each with keys of its own (1 and 16 were slower).
- transaction: `enqueue_in_transaction`, several messages of every key in one commit (1 and 20 were about as fast as 5).

Polling each 0.02 and 0.05 s, coroutines instead of functions, and 1, 2, 8 and 64 executor threads were no faster either.
"""

import asyncio
import sqlite3
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from common import (
    KEYS,
    PAYLOAD,
    PER_SECOND,
    WARM_UP_TASKS,
    Assignment,
    Marks,
    Spending,
    assignment,
    deliver,
    durability_of,
    import_time,
    keyed,
    latency,
    numbers_of,
    paced,
    recovered,
    throughput,
)
from dbos import DBOS, DBOSClient, DBOSConfig, Queue, SetEnqueueOptions, SetWorkflowID, WorkflowHandle
from sqlalchemy import create_engine

ASYNC_IN_FLIGHT = {"sqlite": 4, "postgres": 16}
QUEUE_THREADS = {"sqlite": 4, "postgres": 16}
THREADS = 16
QUEUE_POLLING_SECONDS = 0.25
QUEUE_RESULT_POLLING_SECONDS = 0.01
QUEUE_WARM_UP_TASKS = 4  # each may wait a polling interval

KEYED_POLLING_SECONDS = 0.1
KEYED_THREADS = {"sqlite": 4, "postgres": 16}
SENDERS = 4
MESSAGES_PER_KEY_PER_COMMIT = 5
LOOK_SECONDS = 0.01
WARM_UP_KEY = -1

PACED_THREADS = 16  # of w3: a call a thread, and none of them waits for a thread
RECOVERY_THREADS = {"sqlite": 4, "postgres": 16}

marks: list[Marks] = []
all_accepted = threading.Event()
ran: defaultdict[int, list[int]] = defaultdict(list)  # by key, the numbers of messages in the order their steps ran


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


@DBOS.step()
def mark(index: int, position: int) -> None:
    all_accepted.wait()
    marks[0].add(index, position)


@DBOS.workflow()
def marked(index: int) -> None:
    for position in range(3):
        mark(index, position)


@DBOS.step()
def note(key: int, number: int) -> None:
    ran[key].append(number)


@DBOS.workflow()
def handle(key: int, number: int) -> None:
    note(key, number)


def main() -> None:
    asked = assignment()
    if asked.work == "import":
        deliver(import_time("dbos"), {}, "dbos")
        return
    if asked.work == "w4":
        deliver(recovered(asked, [sys.executable, __file__]), durability_of(asked), "dbos")
        return
    threads = THREADS_OF.get(asked.work, {}).get(asked.store)
    launch(asked, threads=None if asked.work == "w1" and asked.way != "queue" else threads)
    if asked.work in PARTS:
        PARTS[asked.work](asked)
        return
    try:
        figures = WAYS[asked.work, asked.way](asked)
    finally:
        DBOS.destroy()
    deliver(figures, durability_of(asked), "dbos")


def launch(asked: Assignment, threads: int | None) -> None:
    if asked.work == "resume":  # recovery begins with the launch
        marks.append(Marks(asked.folder))
        all_accepted.set()
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


def w5_threads(asked: Assignment) -> dict[str, float]:
    def send(queue: Queue, sender: int) -> dict[int, WorkflowHandle[None]]:
        last = {}
        for number in numbers_of(sender, asked.tasks):
            for key in range(sender, KEYS, SENDERS):
                if number in numbers_of(key, asked.tasks):
                    with SetWorkflowID(message_id(key, number)), SetEnqueueOptions(queue_partition_key=str(key)):
                        last[key] = queue.enqueue(handle, key, number)
        return last

    def send_all(queue: Queue) -> list[WorkflowHandle[None]]:
        with ThreadPoolExecutor(SENDERS) as pool:
            sent = list(pool.map(lambda sender: send(queue, sender), range(SENDERS)))
        return [handle for last in sent for handle in last.values()]

    return keyed_throughput(asked, send_all)


def w5_transaction(asked: Assignment) -> dict[str, float]:
    client = DBOSClient(system_database_url=asked.url)
    engine = create_engine(asked.url.replace("postgresql://", "postgresql+psycopg://"))

    def send_all(queue: Queue) -> list[WorkflowHandle[None]]:
        last = {}
        numbers = numbers_of(0, asked.tasks)  # key 0 has as many as any
        for first in range(0, len(numbers), MESSAGES_PER_KEY_PER_COMMIT):
            with engine.begin() as transaction:
                for number in numbers[first : first + MESSAGES_PER_KEY_PER_COMMIT]:
                    for key in (key for key in range(KEYS) if number in numbers_of(key, asked.tasks)):
                        options = {
                            "queue_name": queue.name,
                            "workflow_name": handle.__qualname__,
                            "workflow_id": message_id(key, number),
                            "queue_partition_key": str(key),
                        }
                        last[key] = client.enqueue_in_transaction(transaction, options, key, number)
        return list(last.values())

    try:
        return keyed_throughput(asked, send_all)
    finally:
        engine.dispose()
        client.destroy()


def keyed_throughput(asked: Assignment, send_all: Callable[[Queue], list[WorkflowHandle[None]]]) -> dict[str, float]:
    """Time the messages from the first submit to the last end; ``send_all`` returns the last message of every key."""
    queue = DBOS.register_queue("keyed", partition_concurrency=1, polling_interval_sec=KEYED_POLLING_SECONDS)
    for number in range(QUEUE_WARM_UP_TASKS):
        with SetEnqueueOptions(queue_partition_key=str(WARM_UP_KEY)):
            sent = queue.enqueue(handle, WARM_UP_KEY, number)
        sent.get_result(polling_interval_sec=QUEUE_RESULT_POLLING_SECONDS)
    started_at = time.perf_counter()
    last = send_all(queue)
    # To ask for each result would take the database from the messages, so only the end of each key is asked for.
    while sum(len(ran[key]) for key in range(KEYS)) < asked.tasks:
        time.sleep(LOOK_SECONDS)
    for message in last:
        message.get_result(polling_interval_sec=QUEUE_RESULT_POLLING_SECONDS)
    return keyed(asked.tasks, started_at, time.perf_counter(), ran)


def message_id(key: int, number: int) -> str:
    """Sorts within its key as the messages were sent."""
    return f"{key:03}-{number:06}"


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


def w3_direct(asked: Assignment) -> dict[str, float]:
    """Plain functions, each in a thread of its own, as a web server calls them."""
    pool = ThreadPoolExecutor(PACED_THREADS)

    async def one(_index: int) -> None:
        await asyncio.get_running_loop().run_in_executor(pool, three, PAYLOAD)

    async def main() -> dict[str, float]:
        for _ in range(WARM_UP_TASKS):
            await one(0)
        return latency(await paced(asked.tasks, PER_SECOND, one))

    with pool:
        return asyncio.run(main())


def w3_async(asked: Assignment) -> dict[str, float]:
    async def one(_index: int) -> None:
        await three_async(PAYLOAD)

    async def main() -> dict[str, float]:
        for _ in range(WARM_UP_TASKS):
            await one(0)
        return latency(await paced(asked.tasks, PER_SECOND, one))

    return asyncio.run(main())


def w6_direct(asked: Assignment) -> dict[str, float]:
    for _ in range(WARM_UP_TASKS):
        three(PAYLOAD)
    spending = Spending()
    for _ in range(asked.tasks):
        three(PAYLOAD)
    return spending.figures(asked.tasks)


def w6_threads(asked: Assignment) -> dict[str, float]:
    with ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(three, [PAYLOAD] * WARM_UP_TASKS))
        spending = Spending()
        list(pool.map(three, [PAYLOAD] * asked.tasks))
        return spending.figures(asked.tasks)


def begin(asked: Assignment) -> None:
    """Have all workflows in flight, then let them go; to be killed. By itself DBOS goes on with them at its next start."""
    marks.append(Marks(asked.folder))
    for index in range(asked.tasks):
        with SetWorkflowID(f"task-{index}"):
            DBOS.start_workflow(marked, index)
    all_accepted.set()
    threading.Event().wait()


def resume(asked: Assignment) -> None:
    """Go on where the killed one stood, until all have ended."""
    for index in range(asked.tasks):
        DBOS.retrieve_workflow(f"task-{index}").get_result(polling_interval_sec=LOOK_SECONDS)
    print("done", flush=True)
    DBOS.destroy()


THREADS_OF = {"w1": QUEUE_THREADS, "w5": KEYED_THREADS, "begin": RECOVERY_THREADS, "resume": RECOVERY_THREADS}
PARTS = {"begin": begin, "resume": resume}
WAYS = {
    ("w1", "direct"): w1_direct,
    ("w1", "threads"): w1_threads,
    ("w1", "async"): w1_async,
    ("w1", "queue"): w1_queue,
    ("w1x2", "threads"): w1_threads,
    ("w2", "direct"): w2_direct,
    ("w2", "async"): w2_async,
    ("w3", "direct"): w3_direct,
    ("w3", "async"): w3_async,
    ("w5", "threads"): w5_threads,
    ("w5", "transaction"): w5_transaction,
    ("w6", "direct"): w6_direct,
    ("w6", "threads"): w6_threads,
}

if __name__ == "__main__":
    main()
