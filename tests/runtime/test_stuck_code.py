"""Workflow code that spins, waits for what never comes, or awaits what it must not: found, held, named."""

import asyncio

import pytest
from runtime_world import QUICK, Machine, session_of, until, within

import arriero
from arriero import Agent, App, Attempt, TaskFailed, testing, workflow
from arriero.core import transitions, workflow_loop
from arriero.runtime.settings import Settings

mules = Agent("mules")


@mules.step
async def load(attempt: Attempt) -> str:
    return "salt"


async def end_of(app: App, call: object) -> TaskFailed:
    async with testing.running(app) as world:
        task = await world.app.submit(call)  # type: ignore[call-overload]  # of a workflow
        with pytest.raises(TaskFailed) as failed:
            await within(task.result())
        ok = await world.app.submit(load())
        assert await within(ok.result()) == "salt"  # nobody else was harmed
        assert failed.value.state == "held"
        return failed.value


async def test_code_that_spins_without_waiting_for_anything_is_held(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workflow_loop, "RUNS_MAX", 2_000)

    @workflow
    async def spin() -> None:
        await load()
        while True:
            await asyncio.sleep(0)

    failed = await end_of(App("spin", agents=[mules], workflows=[spin]), spin())
    assert "it spins" in failed.reason


async def test_code_that_sleeps_for_nothing_for_ever_is_held_at_the_limit_of_its_steps(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(transitions, "STEPS_PER_TASK_MAX", 50)

    @workflow
    async def spin() -> None:
        while True:
            await arriero.sleep(0)

    failed = await end_of(App("spin", agents=[mules], workflows=[spin]), spin())
    assert (failed.code, "more than 50 steps" in failed.reason) == ("too_many_steps", True)


async def test_code_that_waits_for_what_never_comes_is_held() -> None:
    @workflow
    async def idle() -> None:
        await load()
        await asyncio.Event().wait()

    failed = await end_of(App("idle", agents=[mules], workflows=[idle]), idle())
    assert failed.code == "stuck"


@pytest.mark.parametrize("what", ["sleep", "thread", "timeout"])
async def test_code_that_awaits_what_cannot_be_replayed_is_held_with_the_remedy(what: str) -> None:
    @workflow
    async def forbidden(what: str) -> None:
        if what == "sleep":
            await asyncio.sleep(1)
        elif what == "thread":
            await asyncio.to_thread(print)
        else:
            await asyncio.wait_for(load(), 1)

    failed = await end_of(App("forbidden", agents=[mules], workflows=[forbidden]), forbidden(what))
    remedy = {"sleep": "arriero.sleep", "thread": "move the call into a step", "timeout": "complete_within="}[what]
    assert remedy in failed.reason


async def test_a_holder_that_lives_but_does_not_advance_its_task_loses_it_to_another(machine: Machine) -> None:
    """The Supervisor frees a task whose news nobody looked at for ``progress_seconds``."""
    settings = Settings(
        **{name: getattr(QUICK, name) for name in QUICK.__struct_fields__ if name != "progress_seconds"},
        progress_seconds=0.3,
    )
    stuck, other = machine.app([mules], [], settings=settings), machine.app([mules], [], settings=settings)
    async with stuck.running():
        scheduler = session_of(stuck).scheduler
        scheduler._process_claim_answer = lambda _room, _answer: setattr(scheduler, "_claiming", False)  # type: ignore[method-assign]  # it forgets what it claims
        scheduler.look_for_news = lambda: asyncio.sleep(0)  # type: ignore[method-assign]
        task = await stuck.submit(load())
        await machine.event("task.claimed", task=task.id)
        scheduler._draining = True  # and claims nothing more
        async with other.running():
            assert await within(other.task(task.id).result()) == "salt"
        released = await machine.events("task.released")
        assert [event["why"] for event in released] == ["stuck"]
        await until(lambda: not scheduler.drivers)
    await machine.check()
