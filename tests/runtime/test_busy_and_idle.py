"""Tasks that wait, tasks that never rest, and drains that find more to do than they knew."""

import asyncio
from datetime import timedelta

import pytest

import arriero
from arriero import Agent, App, Attempt, TaskCompensated, testing, workflow


async def test_a_timer_fires_while_a_step_of_the_same_task_is_under_way() -> None:
    agent = Agent("slow")
    order: list[str] = []

    @agent.step(complete_within=600)
    async def long(attempt: Attempt) -> None:
        await asyncio.Event().wait()

    @agent.step
    async def short(attempt: Attempt) -> None:
        order.append("after the sleep")

    @workflow(complete_within=60)
    async def both() -> None:
        async def slept() -> None:
            await arriero.sleep(20)
            await short()

        await asyncio.gather(long(), slept())

    async with testing.running(App("both", agents=[agent], workflows=[both])) as world:
        task = await world.app.submit(both())
        await world.clock.advance(timedelta(seconds=30))
        assert order == ["after the sleep"]
        assert (await task.view()).state == "processing"


async def test_timers_that_are_due_at_once_fire_in_the_order_of_their_times_not_in_that_of_their_asking() -> None:
    """The task was kept from them all meanwhile, as it is while no process is there."""

    @workflow
    async def naps() -> list[int]:
        woken: list[int] = []

        async def nap(seconds: int) -> None:
            await arriero.sleep(seconds)
            woken.append(seconds)

        await asyncio.gather(*(nap(seconds) for seconds in (30, 10, 40, 20)))
        return woken

    async with testing.running(App("naps", workflows=[naps])) as world:
        task = await world.app.submit(naps())
        await world.clock.advance(timedelta(seconds=1))
        await task.pause(by="ana", reason="wait")
        await world.clock.advance(timedelta(seconds=60))
        await task.resume(by="ana", reason="go on")
        assert await task.result() == [10, 20, 30, 40]


async def test_a_task_that_is_always_busy_meets_its_limit_all_the_same() -> None:
    agent = Agent("quick")

    @agent.step(effect_free=True)
    async def look(attempt: Attempt) -> None:
        return None

    @workflow(complete_within=30)
    async def restless() -> None:
        while True:
            await look()
            await arriero.sleep(0.5)

    async with testing.running(App("restless", agents=[agent], workflows=[restless])) as world:
        task = await world.app.submit(restless())
        began = world.clock.now()
        with pytest.raises(TaskCompensated, match="complete_within"):
            await task.result()
        assert world.clock.now() - began < timedelta(seconds=32)


async def test_tasks_that_wait_for_a_full_agent_keep_no_others_out(tmp_path) -> None:  # type: ignore[no-untyped-def]  # pytest's
    blocked, free = Agent("blocked", max_in_flight=1), Agent("free")
    let_go = asyncio.Event()

    @blocked.step(complete_within=600)
    async def wait(attempt: Attempt) -> None:
        await let_go.wait()

    @free.step
    async def go(attempt: Attempt) -> str:
        return "gone"

    app = App("crowd", agents=[blocked, free])
    app.session.settings = arriero.runtime.settings.Settings(tasks_max=5, linger_seconds=0.05, poll_seconds=0.01)
    async with app.running(store=f"sqlite:///{tmp_path}/crowd.db"):
        waiting = [await app.submit(wait()) for _ in range(20)]
        assert await (await app.submit(go())).result(timeout=60) == "gone"
        let_go.set()
        await asyncio.gather(*(task.result(timeout=60) for task in waiting))
