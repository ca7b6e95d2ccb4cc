"""Limits as Apps keep them: attempts at once, rates with their tries, keys that take turns, keys that fail."""

import asyncio
from collections import Counter
from typing import Any

import pytest
from runtime_world import within

import arriero
from arriero import Agent, App, Attempt, Concurrent, Rate, Retry, TaskFailed, Transient, testing
from arriero.declare.limits import Limit


class Service:
    """An Agent whose calls take a second, and what they showed."""

    def __init__(self, *limits: Limit, refusals: int = 0, tries: int = 1) -> None:
        self.now: Counter[str] = Counter()
        self.peaks: Counter[str] = Counter()
        self.begun: list[tuple[float, str]] = []
        self.agent = Agent("payments", limits=limits, max_in_flight=50, retry_budget=None)
        failures: Counter[int] = Counter()
        self.clock: Any = None
        self.sleep: Any = None

        @self.agent.step(retry=Retry(tries=tries, delay=0.01))
        async def charge(attempt: Attempt, merchant: str, number: int) -> int:
            self.begun.append((self.clock.now().timestamp(), merchant))
            for name in (merchant, ""):
                self.now[name] += 1
                self.peaks[name] = max(self.peaks[name], self.now[name])
            await self.sleep(1)
            for name in (merchant, ""):
                self.now[name] -= 1
            failures[number] += 1
            if failures[number] <= refusals:
                raise Transient("busy")
            return number

        @arriero.workflow
        async def order(merchant: str, number: int) -> int:
            return await charge(merchant, number)

        self.order = order
        self.app = App("shop", agents=[self.agent], workflows=[order])

    async def run(self, orders: list[str]) -> None:
        async with testing.running(self.app) as world:
            self.clock, self.sleep = world.clock, world.app.session.ports.clock.sleep
            tasks = [await world.app.submit(self.order(merchant, number)) for number, merchant in enumerate(orders)]
            await within(asyncio.gather(*(task.result() for task in tasks)))


def of_merchant(merchant: str, number: int) -> str:
    return merchant


async def test_no_more_attempts_run_at_once_than_the_limit_and_all_orders_end() -> None:
    service = Service(Concurrent(3))
    await service.run(["a"] * 12)
    assert service.peaks[""] == 3


async def test_one_merchant_uses_its_own_room_and_others_pass_it() -> None:
    service = Service(Concurrent(4), Concurrent(2, key=of_merchant))
    await service.run(["big"] * 10 + ["x", "y", "z"])
    assert (service.peaks["big"], service.peaks[""]) == (2, 4)
    first = [merchant for _, merchant in service.begun[:8]]
    assert {"x", "y", "z"} <= set(first)


async def test_every_call_counts_under_a_rate_also_a_further_try() -> None:
    service = Service(Rate(4, per=10), refusals=1, tries=3)
    await service.run(["a"] * 8)
    instants = [at for at, _ in service.begun]
    assert len(instants) == 16
    assert all(last - first >= 10 for first, last in zip(instants, instants[4:], strict=False))


async def test_a_key_that_raises_holds_its_task_and_names_the_agent_and_the_limit() -> None:
    def fail(merchant: str, number: int) -> str:
        raise LookupError("no such merchant")

    service = Service(Concurrent(1, key=fail, name="of merchant"))
    with pytest.raises(TaskFailed, match="Agent payments: the key of limit 'of merchant' failed for step charge"):
        await service.run(["a"])
