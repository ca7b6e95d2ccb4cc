"""arriero, as its README shows it: everything in one process, defaults but for room for the tasks."""

import asyncio
import time

from arriero_app import app, finish, three, three_calls, warm_up
from arriero_batches import batches
from arriero_breaker_cost import breaker_cost
from arriero_children import children
from arriero_convoys import cold, w5
from arriero_fairness import flood
from arriero_http import http
from arriero_limits import limits
from arriero_masses import sleeping, w7, w8
from arriero_processes import w1x2, w4, w9
from arriero_pull import pull
from arriero_replay import replay
from arriero_schedules import schedules
from arriero_signals import signals
from arriero_takeover import takeover
from common import (
    HTTP_SECONDS,
    PAYLOAD,
    PER_SECOND,
    WARM_UP_TASKS,
    Spending,
    assignment,
    deliver,
    durability_of,
    import_time,
    latency,
    paced,
    throughput,
)

CALLS_IN_FLIGHT = 1_000  # of w10: as many as the Agent takes


def main() -> None:
    asked = assignment()
    if asked.work == "import":
        deliver(import_time("arriero"), {}, "arriero")
        return
    if asked.work == "outage":
        from arriero_outage import outage  # it loads the simulator, which no other work should hold in memory

        deliver(outage(asked.tasks), {}, "arriero")
        return
    if asked.work == "trace_cost":  # it loads OpenTelemetry
        from arriero_trace_cost import trace_cost

        deliver(asyncio.run(trace_cost(asked.tasks, asked.url)), durability_of(asked), "arriero")
        return
    figures = w4(asked) if asked.work == "w4" else asyncio.run(run(asked.work, asked.url, asked.tasks))
    deliver(figures, durability_of(asked), "arriero")


async def run(work: str, url: str, tasks: int) -> dict[str, float]:
    if work in WITH_OWN_STORES:
        return await WITH_OWN_STORES[work](tasks, url)
    roles = ["scheduler", "supervisor"] if work == "w9" else None
    async with app.running(store=url, roles=roles):
        if work in WITH_URL:
            return await WITH_URL[work](tasks, url)
        return await WORKS[work](tasks)


async def w1(tasks: int) -> dict[str, float]:
    await warm_up()
    started_at = time.perf_counter()
    await finish(tasks)
    return throughput(tasks, started_at, time.perf_counter())


async def w2(tasks: int) -> dict[str, float]:
    seconds = []
    for _ in range(WARM_UP_TASKS + tasks):
        started_at = time.perf_counter()
        await one(0)
        seconds.append(time.perf_counter() - started_at)
    return latency(seconds[WARM_UP_TASKS:])


async def w3(tasks: int) -> dict[str, float]:
    await warm_up()
    return latency(await paced(tasks, PER_SECOND, one))


async def one(_index: int) -> None:
    task = await app.submit(three(PAYLOAD))
    await task.result()


async def w6(tasks: int) -> dict[str, float]:
    await warm_up()
    spending = Spending()
    await finish(tasks)
    return spending.figures(tasks)


async def w10(tasks: int) -> dict[str, float]:
    """The share of the time that is not waiting for the calls: 0 if the engine took none."""

    async def worker(share: int) -> None:
        for _ in range(share):
            await (await app.submit(three_calls(PAYLOAD))).result()

    shares = [len(range(first, tasks, CALLS_IN_FLIGHT)) for first in range(CALLS_IN_FLIGHT)]
    await warm_up()
    started_at = time.perf_counter()
    await asyncio.gather(*map(worker, shares))
    spent = time.perf_counter() - started_at
    return {"share": 1 - max(shares) * 3 * HTTP_SECONDS / spent, "throughput": tasks / spent}


WORKS = {
    "w1": w1,
    "w2": w2,
    "w3": w3,
    "w5": w5,
    "w6": w6,
    "w8": w8,
    "w10": w10,
    "signals": signals,
    "children": children,
    "batches": batches,
    "replay": replay,
    "cold": cold,
    "flood": flood,
    "sleeping": sleeping,
}
WITH_URL = {"w1x2": w1x2, "w9": w9}
WITH_OWN_STORES = {
    "w7": w7,
    "breaker_cost": breaker_cost,
    "limits": limits,
    "takeover": takeover,
    "schedules": schedules,
    "http": http,
    "pull": pull,
}

if __name__ == "__main__":
    main()
