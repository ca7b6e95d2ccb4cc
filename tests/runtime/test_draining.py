"""Leaving: attempts under way end, tasks are put down, nothing is lost, and another goes on."""

import asyncio

from runtime_world import Machine, until, within

import arriero
from arriero import Agent, Attempt, workflow

mules = Agent("mules", max_in_flight=2)
began: list[str] = []
go: dict[str, asyncio.Event] = {}


@mules.step
async def load(attempt: Attempt, name: str) -> str:
    began.append(name)
    if name in go:
        await go[name].wait()
    return name


@workflow
async def carry() -> list[str]:
    return [await load("first"), await load("second")]


@workflow
async def rest() -> str:
    await arriero.sleep(3600)
    return "rested"


async def test_a_drain_waits_for_attempts_records_them_and_puts_the_task_down(machine: Machine) -> None:
    began.clear()
    go["first"] = asyncio.Event()
    first, second = machine.app([mules], [carry]), machine.app([mules], [carry])
    running = first.running()
    await running.__aenter__()
    task = await first.submit(carry())
    await until(lambda: began == ["first"])
    leaving = asyncio.create_task(running.__aexit__(None, None, None))
    await until(lambda: first.session.node is None)
    assert not leaving.done()
    go.pop("first").set()
    await within(leaving)
    assert began == ["first"]  # its second step was recorded for somebody else
    assert [e["why"] for e in await machine.events("task.released")] == ["put_down"]
    async with second.running():
        assert await within(second.task(task.id, carry).result()) == ["first", "second"]
    assert began == ["first", "second"]
    assert await machine.events("task.lost", "step.lost") == []
    await machine.check()


async def test_while_one_drains_another_takes_over_at_once(machine: Machine) -> None:
    began.clear()
    go["first"] = asyncio.Event()
    first, second = machine.app([mules], [carry]), machine.app([mules], [carry])
    running = first.running()
    await running.__aenter__()
    task = await first.submit(carry())
    await until(lambda: began == ["first"])
    async with second.running():
        leaving = asyncio.create_task(running.__aexit__(None, None, None))
        await until(lambda: first.session.node is None)
        assert await within((await second.submit(load("other"))).result()) == "other"
        go.pop("first").set()
        assert await within(second.task(task.id, carry).result()) == ["first", "second"]
        await within(leaving)
    assert began == ["first", "other", "second"]
    await machine.check()


async def test_a_drain_of_many_tasks_loses_none(machine: Machine) -> None:
    began.clear()
    go.clear()
    async with machine.app([mules], [carry]).running() as app:
        tasks = [await app.submit(carry()) for _ in range(40)]
    async with machine.app([mules], [carry]).running() as again:
        for task in tasks:
            assert await within(again.task(task.id, carry).result()) == ["first", "second"]
    assert len(began) == 80
    await machine.check()


async def test_a_sleeping_task_does_not_hold_up_a_drain(machine: Machine) -> None:
    app = machine.app([], [rest])
    async with app.running():
        task = await app.submit(rest())
        await machine.event("step.opened", task=task.id)
    released = await machine.events("task.released")
    assert [event["task"] for event in released] == [task.id]
    assert await machine.events("task.lost") == []


async def test_what_is_submitted_while_it_drains_is_kept_for_the_next(machine: Machine) -> None:
    began.clear()
    go["first"] = asyncio.Event()
    app = machine.app([mules], [carry])
    async with app:
        running = app.running()
        await running.__aenter__()
        await app.submit(carry())
        await until(lambda: began == ["first"])
        leaving = asyncio.create_task(running.__aexit__(None, None, None))
        await until(lambda: app.session.node is None)
        late = await app.submit(load("late"))
        assert (await late.view()).state == "pending"
        go.pop("first").set()
        await within(leaving)
        assert (await late.view()).state == "pending"
    async with app.running():
        assert await within(app.task(late.id).result()) == "late"
