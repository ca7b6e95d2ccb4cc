"""What the defaults of an Agent cost where nothing fails: `w1` and `w2` with its breaker and retry budget, and without both.

The Apps run at once in this process, each on a store of its own, and work in turn. So they meet the same machine. Two of them
have neither breaker nor budget: what they differ by is noise.
"""

import asyncio
import gc
import time
from contextlib import AsyncExitStack
from statistics import median
from typing import Any

from arriero_masses import beside
from common import PAYLOAD, WARM_UP_TASKS, Spending, latency

from arriero import Agent, App, Attempt, workflow

TURNS = 40  # of each: short ones, because other programs' share of the machine changes within seconds
OF_TIME = ("w1 throughput", "w2 p50")
OF_CPU = ("w1 cpu", "w2 cpu")
ONE_AT_A_TIME = 4  # for so many tasks of w1 there is one of w2, as in their own numbers


def make_app(*, has_defaults: bool) -> App:
    """The App of `w1` and `w2`, whose Agent has the default breaker and retry budget, or neither."""
    off: dict[str, Any] = {} if has_defaults else {"breaker": None, "retry_budget": None}
    echoes = Agent("echoes", max_in_flight=1_000, **off)

    @echoes.step
    async def echo(attempt: Attempt, payload: str) -> str:
        return payload

    @workflow
    async def three(payload: str) -> str:
        await echo(payload)
        await echo(payload)
        return await echo(payload)

    return App("bench", agents=[echoes], workflows=[three])


async def breaker_cost(tasks: int, url: str) -> dict[str, float]:
    """Figures with the defaults, divided by those without; and the noise: how much two Apps without differ at most."""
    apps = [make_app(has_defaults=has_defaults) for has_defaults in (True, False, False)]
    async with AsyncExitStack() as stack:
        for number, app in enumerate(apps):
            await stack.enter_async_context(app.running(store=beside(url, number) if number else url))
            await finish(app, WARM_UP_TASKS)
        taken: list[list[dict[str, float]]] = [[], [], []]
        for turn in range(TURNS):
            for place in range(len(apps)):
                chosen = (turn + place) % len(apps)  # none always comes first
                taken[chosen].append(await measured(apps[chosen], tasks // TURNS))
    guarded, unguarded, control = taken
    same = compare(control, unguarded)
    return compare(guarded, unguarded) | {"noise": max(abs(ratio - 1) for ratio in same.values())}


def compare(of: list[dict[str, float]], to: list[dict[str, float]]) -> dict[str, float]:
    """Each figure divided by that of others: of time the median over turns, of CPU the sums."""
    of_time = {figure: median(a[figure] / b[figure] for a, b in zip(of, to, strict=True)) for figure in OF_TIME}
    of_cpu = {figure: sum(a[figure] for a in of) / sum(b[figure] for b in to) for figure in OF_CPU}
    return of_time | of_cpu


async def measured(app: App, tasks: int) -> dict[str, float]:
    """The figures of one turn."""
    gc.collect()
    spending, started_at = Spending(), time.perf_counter()
    await finish(app, tasks)
    throughput = tasks / (time.perf_counter() - started_at)
    w1_cpu = spending.figures(tasks)["cpu"]
    spending, seconds = Spending(), []
    for _ in range(tasks // ONE_AT_A_TIME):
        started_at = time.perf_counter()
        await finish(app, 1)
        seconds.append(time.perf_counter() - started_at)
    w2_cpu = spending.figures(len(seconds))["cpu"]
    return {"w1 throughput": throughput, "w1 cpu": w1_cpu, "w2 p50": latency(seconds)["p50"], "w2 cpu": w2_cpu}


async def finish(app: App, tasks: int) -> None:
    """Submit as fast as possible; until the last end."""
    three = app.workflows[0]
    submitted = await asyncio.gather(*(app.submit(three(PAYLOAD)) for _ in range(tasks)))
    await asyncio.gather(*(task.result() for task in submitted))
