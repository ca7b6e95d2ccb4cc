"""What an outage looks like from the store, on a clock that jumps."""

import pytest

from arriero import Agent, App, Attempt, Retry, Supervision, Transient, testing, workflow
from arriero.explain.doctor import Finding
from arriero.explain.outages import diagnose_attempts
from arriero.testing import World

payments = Agent("payments", breaker=None, retry_budget=None)


@payments.step(retry=Retry(tries=1), supervision=Supervision(attempts=3, rounds=2, cool_off=900))
def charge(attempt: Attempt, order: str) -> str:
    return f"receipt-{order}"


@workflow
async def sell(order: str) -> str:
    return await charge(order)


app = App("shop", agents=[payments], workflows=[sell])


def refuse(order: str) -> str:
    raise Transient("connection refused")


async def judged(world: World) -> list[Finding]:
    survey = await world._store.survey_attempts()
    _, processes = await world._store.known_processes()
    return [one for one in diagnose_attempts(survey, processes) if one.level == "care"]


@pytest.mark.parametrize("seconds", [0.1, 1, 5, 20, 600])
async def test_a_service_that_refuses_every_call_is_seen_within_seconds_and_while_its_tasks_cool_off(
    seconds: float,
) -> None:
    async with testing.running(app) as world:
        world.replace(charge, refuse)
        for number in range(12):
            await world.app.submit(sell(f"order-{number}"))
        await world.clock.advance(seconds)
        (found,) = await judged(world)
        assert found.about == "outage"
        assert "Agent payments: all 12 tasks that asked it failed since 20" in found.says
        assert "nothing succeeded; 12 tasks wait for their next attempt, the first in " in found.says


async def test_two_tasks_that_fail_are_an_outage_only_after_some_seconds() -> None:
    async with testing.running(app) as world:
        world.replace(charge, refuse)
        for number in range(2):
            await world.app.submit(sell(f"order-{number}"))
        await world.clock.advance(0.1)
        assert await judged(world) == []
        await world.clock.advance(20)
        (found,) = await judged(world)
        assert "all 2 tasks that asked it failed since" in found.says


async def test_a_service_that_is_back_needs_nobody() -> None:
    async with testing.running(app) as world:
        world.answers(charge, Transient("connection refused"), Transient("connection refused"), "receipt")
        task = await world.app.submit(sell("order-1"))
        await world.clock.advance(0.3)
        assert await judged(world) == []
        assert await task.result() == "receipt"
        assert await judged(world) == []


async def test_a_task_that_a_person_paused_is_no_longer_tried_again() -> None:
    async with testing.running(app) as world:
        world.replace(charge, refuse)
        task = await world.app.submit(sell("order-1"))
        await world.clock.advance(20)  # all attempts of a round failed, and it cools off
        (found,) = await judged(world)
        assert found.about == "repeating"
        assert "attempt 4 in 14 min" in found.says
        await task.pause(by="ana", reason="the bank is down")
        assert await judged(world) == []
