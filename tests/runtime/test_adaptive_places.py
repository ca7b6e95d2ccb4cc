"""Adaptive concurrency in a process: a slow service gets fewer calls at once, and reserved places starve nobody."""

import asyncio
import logging
from typing import Any

import pytest
from runtime_world import session_of, within

from arriero import Adaptive, Agent, App, Attempt, testing, workflow

KEEPS_UP = 4


class Press:
    """A service whose answers take ten times as long when more than ``KEEPS_UP`` calls are made at once."""

    def __init__(self, **options: Any) -> None:
        self.at_once = 0
        self.peaks: list[int] = []
        self.sleep: Any = None
        self.agent = Agent("press", max_in_flight=40, **options)

        @self.agent.step(effect_free=True)
        async def print_page(attempt: Attempt, number: int) -> int:
            self.at_once += 1
            self.peaks.append(self.at_once)
            await self.sleep(0.1 if self.at_once <= KEEPS_UP else 1.0)
            self.at_once -= 1
            return number

        @workflow
        async def page(number: int) -> int:
            return await print_page(number)

        self.page = page
        self.app = App("shop", agents=[self.agent], workflows=[page])


async def _print(press: Press, pages: int, priority: int = 5) -> int:
    async with testing.running(press.app) as world:
        press.sleep = world._virtual.sleep
        tasks = [await world.app.submit(press.page(number), priority=priority) for number in range(pages)]
        await asyncio.gather(*(within(task.result()) for task in tasks))
        assert session_of(world.app).agents.count_leaked_places() == 0
    return max(press.peaks[len(press.peaks) // 2 :])


async def test_a_service_that_slows_down_gets_fewer_calls_at_once(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "arriero"):
        assert await _print(Press(adaptive=True), 400) <= 3 * KEEPS_UP
    assert [record for record in caplog.records if "Agent press now makes" in record.message]


async def test_without_it_the_service_gets_all_that_the_agent_may_make() -> None:
    assert await _print(Press(), 400) == 40


async def test_reserved_places_leave_one_to_the_others_however_few_there_are() -> None:
    await _print(Press(adaptive=Adaptive(minimum=1), reserve=20), 60)
