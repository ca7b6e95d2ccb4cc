"""Any role alone, any number of times, on one file; and what a process leaves to those who can."""

import asyncio
from contextlib import AsyncExitStack

import pytest
from runtime_world import Machine, within

from arriero import Agent, Attempt, Permanent, StepFailed, Supervision, TaskCompensated, TaskFailed, Undo, workflow

where: list[str] = []
mules, hands = Agent("mules"), Agent("hands")


@mules.step
async def load(attempt: Attempt, name: str) -> str:
    where.append(f"load {name}")
    return name


@load.compensation
async def unload(undo: Undo[str], name: str) -> None:
    where.append(f"unload {name}")


@hands.step(complete_within=0.1, supervision=Supervision(attempts=1))
async def hang(attempt: Attempt) -> None:
    await asyncio.Event().wait()


@workflow
async def carry(name: str) -> list[str]:
    return list(await asyncio.gather(load(name), load(name + name)))


@workflow
async def carry_and_hang() -> None:
    await load("salt")
    await hang()


@workflow(supervision=Supervision(attempts=1))
async def catch() -> str:
    try:
        await hang()
    except StepFailed as failed:
        return failed.cause
    return "done"


@pytest.fixture(autouse=True)
def nowhere() -> None:
    where.clear()


async def test_three_processes_with_one_role_each_run_a_task_together(machine: Machine) -> None:
    async with AsyncExitStack() as stack:
        apps = {role: machine.app([mules, hands], [carry, catch]) for role in ("scheduler", "agents", "supervisor")}
        for role, app in apps.items():
            await stack.enter_async_context(app.running(roles=[role]))
        client = await stack.enter_async_context(machine.app([mules, hands], [carry, catch]))
        assert await within((await client.submit(carry("salt"))).result()) == ["salt", "saltsalt"]
        assert await within((await client.submit(catch())).result()) == "expired"
    claims = {event["process"] for event in await machine.events("task.claimed")}
    attempts = {event["process"] for event in await machine.events("step.dispatched")}
    terms = {event["process"] for event in await machine.events("lease.granted")}
    assert len(claims) == len(attempts) == len(terms) == 1
    assert not claims & attempts and not attempts & terms and not claims & terms
    await machine.check()


async def test_an_undo_runs_over_processes_with_one_role_each(machine: Machine) -> None:
    async with AsyncExitStack() as stack:
        for role in ("scheduler", "agents", "supervisor"):
            await stack.enter_async_context(machine.app([mules, hands], [carry_and_hang]).running(roles=[role]))
        client = await stack.enter_async_context(machine.app([mules, hands], [carry_and_hang]))
        task = await client.submit(carry_and_hang())
        with pytest.raises(TaskFailed, match="hang may have happened and has no compensation") as failed:
            await within(task.result())
        assert failed.value.open_compensations == ()  # the rest was undone before it was held
    await machine.check()


async def test_several_schedulers_and_agents_share_the_work_and_do_each_thing_once(machine: Machine) -> None:
    async with AsyncExitStack() as stack:
        for role in ("scheduler", "scheduler", "agents", "agents"):
            await stack.enter_async_context(machine.app([mules], [carry]).running(roles=[role]))
        client = await stack.enter_async_context(machine.app([mules], [carry]))
        tasks = [await client.submit(carry(f"n{number}.")) for number in range(30)]
        await within(asyncio.gather(*(task.result() for task in tasks)))
    assert sorted(where) == sorted(f"load {name}" for n in range(30) for name in (f"n{n}.", f"n{n}.n{n}."))
    await machine.check()


async def test_agents_alone_leave_tasks_and_a_scheduler_alone_leaves_steps(machine: Machine) -> None:
    agents, scheduler = machine.app([mules], [carry]), machine.app([mules], [carry])
    async with agents.running(roles=["agents"]):
        task = await agents.submit(carry("salt"))
        async with scheduler.running(roles=["scheduler"], agents=[]):
            assert await within(task.result()) == ["salt", "saltsalt"]
    async with scheduler.running(roles=["scheduler"]):
        waits = await scheduler.submit(carry("wool"))
        await machine.event("step.opened", task=waits.id)
        assert (await waits.view()).waiting_for == "step load of Agent mules (pending, attempt 1)"
    await machine.check(complete=False)


async def test_a_request_waits_for_whoever_hosts_its_agent(machine: Machine) -> None:
    first, second = machine.app([mules, hands], [carry]), machine.app([mules, hands], [carry])
    async with first.running(agents=["hands"]):
        task = await first.submit(carry("salt"))
        await machine.event("step.opened", task=task.id)
        async with second.running(roles=["agents"], agents=["mules"]):
            assert await within(task.result()) == ["salt", "saltsalt"]
    assert {event["process"] for event in await machine.events("step.dispatched")} == {2}


async def test_a_step_whose_code_is_not_here_is_left_to_those_who_have_it(machine: Machine) -> None:
    """The same Agent in an older release: it knows the Agent but not yet the step."""
    older = Agent("mules")

    @older.step
    async def saddle(attempt: Attempt) -> str:
        return "saddled"

    old, new = machine.app([older]), machine.app([mules], [carry])
    async with old.running(roles=["agents"]), new.running(roles=["scheduler"]):
        task = await new.submit(carry("salt"))
        await machine.event("step.opened", task=task.id)
        async with machine.app(
            [older]
        ).running() as also_old:  # it works, and had every chance to take what it cannot do
            assert await within((await also_old.submit(saddle())).result()) == "saddled"
        assert task.id not in {event["task"] for event in await machine.events("step.dispatched")}
        async with machine.app([mules], [carry]).running(roles=["agents"]):
            assert await within(task.result()) == ["salt", "saltsalt"]
    await machine.check()


async def test_a_workflow_without_code_in_this_process_is_left_alone(machine: Machine) -> None:
    with_code, without = machine.app([mules], [carry]), machine.app([mules], [])
    async with with_code, without.running():
        task = await with_code.submit(carry("salt"))
        assert await within((await without.submit(load("wool"))).result()) == "wool"
        assert (await task.view()).state == "pending"
    claimed = await machine.events("task.claimed")
    assert task.id not in {event["task"] for event in claimed}
    async with with_code.running():
        assert await within(with_code.task(task.id, carry).result()) == ["salt", "saltsalt"]
    await machine.check()


async def test_a_step_of_an_agent_that_is_not_in_the_app_holds_the_task_and_names_it(machine: Machine) -> None:
    app = machine.app([hands], [carry])
    async with app.running():
        with pytest.raises(
            TaskFailed, match="step load of Agent mules is not in this App: add the Agent to it"
        ) as failed:
            await within((await app.submit(carry("salt"))).result())
        assert (failed.value.state, failed.value.code, failed.value.step) == ("held", "unknown_step", "load")
    assert where == []


async def test_an_undo_needs_no_workflow_code(machine: Machine) -> None:
    """Any Scheduler undoes, also one that does not have the workflow."""
    asked = asyncio.Event()
    gate = Agent("gate")

    @gate.step(effect_free=True)
    async def wait(attempt: Attempt) -> None:
        asked.set()
        raise Permanent("closed")

    @workflow
    async def blocked() -> None:
        await load("salt")
        await wait()

    full, bare = machine.app([mules, gate], [blocked]), machine.app([mules, gate], [])
    async with full.running(agents=["gate"]):
        task = await full.submit(blocked())
        await machine.event("step.opened", task=task.id)  # nobody hosts mules yet
        async with machine.app([mules]).running(roles=["agents"]) as agents:
            await machine.event("undo.planned", task=task.id)
            assert agents is not None
    async with bare.running():
        with pytest.raises(TaskCompensated, match="closed"):
            await within(bare.task(task.id).result())
    assert where == ["load salt", "unload salt"]
    await machine.check()
