"""Limits of an Agent that four processes share: how much of their room is in use while enough requests wait.

Each process runs everything and submits its share. The service answers after 100 ms. The history of the store tells when attempts
began and ended.
"""

import asyncio
import sys
from collections.abc import Sequence
from contextlib import AsyncExitStack

from arriero_masses import beside
from arriero_processes import another, told
from common import Assignment, assignment
from limit_figures import Commit, Moment, count_most, list_moments, measure_rate, measure_room

from arriero import Agent, App, Attempt, Concurrent, Rate, workflow
from arriero.events import read_events
from arriero.store import open_store

PROCESSES = 4
ANSWER_SECONDS = 0.1
AT_ONCE = 50  # of all, and the places of each process
OF_MERCHANT = 2
MERCHANTS = 40
A_SECOND = 200
COMMON, OF_KEY = "concurrent", "concurrent by key"


def choose_merchant(number: int) -> str:
    """The key of a request."""
    return f"merchant-{number % MERCHANTS}"


PARTS = {
    "concurrent": (Concurrent(AT_ONCE),),
    "keyed": (Concurrent(AT_ONCE), Concurrent(OF_MERCHANT, key=choose_merchant)),
    "rate": (Rate(A_SECOND, per=1),),
}


def make_app(part: str) -> App:
    """The App of one part."""
    payments = Agent("payments", limits=PARTS[part], max_in_flight=AT_ONCE)

    @payments.step
    async def charge(attempt: Attempt, number: int) -> None:
        await asyncio.sleep(ANSWER_SECONDS)

    @workflow
    async def order(number: int) -> None:
        await charge(number)

    return App("bench", agents=[payments], workflows=[order])


async def limits(tasks: int, url: str) -> dict[str, float]:
    """The figures of ``model.agents``: each part has a store of its own. A rate takes longer, so it gets half of the tasks."""
    concurrent = await run_part("concurrent", tasks, url)
    keyed = await run_part("keyed", tasks, beside(url, 1))
    rate = await run_part("rate", tasks // 2, beside(url, 2))
    in_use, calls = measure_room(concurrent, AT_ONCE, tasks)
    keyed_in_use, keyed_calls = measure_room(keyed, AT_ONCE, tasks)
    begun, most_a_second = measure_rate(rate, A_SECOND, tasks // 2)
    return {
        "in use": in_use,
        "most": count_most(concurrent, COMMON),
        "calls": calls,
        "keyed in use": keyed_in_use,
        "keyed most": count_most(keyed, COMMON),
        "most of a key": count_most(keyed, OF_KEY),
        "keyed calls": keyed_calls,
        "rate": begun,
        "most a second": most_a_second,
    }


async def run_part(part: str, tasks: int, url: str) -> list[Moment]:
    """Let all processes do their share; what the history tells of it."""
    app = make_app(part)
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(app.running(store=url))
        share = tasks // PROCESSES
        others = [
            await stack.enter_async_context(another(url, part, share, program=__file__)) for _ in range(PROCESSES - 1)
        ]
        for other in others:
            await told(other)  # it has started
        for other in others:
            other.stdin.write(b"go\n")  # type: ignore[union-attr]  # it is a pipe
        await finish(app, range(tasks - share * len(others)))
        for other in others:
            await told(other)
    return await read_moments(url)


async def read_moments(url: str) -> list[Moment]:
    """What the history of a store tells."""
    store = open_store(url)
    await store.open()
    try:
        rows = [row async for row in store.history()]
    finally:
        await store.close()
    return list_moments(Commit(row.task_no, row.at, read_events(row.events)) for row in rows)


async def finish(app: App, numbers: Sequence[int]) -> None:
    """Submit as fast as possible; until the last end."""
    order = app.workflows[0]
    submitted = await asyncio.gather(*(app.submit(order(number)) for number in numbers))
    await asyncio.gather(*(task.result() for task in submitted))


async def take_part(asked: Assignment) -> None:
    """One of the other processes."""
    app = make_app(asked.work)
    async with app.running(store=asked.url):
        print("there", flush=True)
        await asyncio.to_thread(sys.stdin.readline)
        await finish(app, range(asked.tasks))
        print("done", flush=True)
        await asyncio.to_thread(sys.stdin.read)


if __name__ == "__main__":
    asyncio.run(take_part(assignment()))
