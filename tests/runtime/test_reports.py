"""Late, stale and repeated reports change nothing and are kept with their verdict."""

import asyncio
from collections.abc import Sequence

import pytest
from runtime_world import Machine, session_of, until, within

from arriero import Agent, App, Attempt, Retry, StoreError, Supervision, Transient, testing, workflow
from arriero.model import StepRow
from arriero.model.answers import Answer, Taken
from arriero.model.commands import AnyCommand
from arriero.model.moves import Reported, Succeeded
from arriero.store.memory import MemoryStore


class Desk:
    """An Agent whose step waits until it is told, and the row of each of its attempts."""

    def __init__(self, machine: Machine, complete_within: float = 30.0) -> None:
        self.go = asyncio.Event()
        self.numbers: list[int] = []
        agent = Agent("desk")

        @agent.step(complete_within=complete_within, retry=Retry(tries=1), supervision=Supervision(attempts=4))
        async def ask(attempt: Attempt) -> str:
            self.numbers.append(attempt.number)
            await self.go.wait()
            return f"attempt {attempt.number}"

        @workflow
        async def inquire() -> list[str]:
            return [await ask(), await ask()]

        self.inquire = inquire
        self.app = machine.app([agent], [inquire])

    async def row(self, task_id: str, ordinal: int = 1) -> StepRow:
        loaded = await self.app.session.store.find(task_id)
        assert loaded is not None
        return loaded.steps[ordinal - 1]


def forged(app: App, step: StepRow, *, fence: int) -> Reported:
    """A report as a network or a forgotten process might bring it."""
    return Reported(step.step_no, fence, Succeeded('"forged"'), app.session.store.now())


async def verdicts(machine: Machine) -> list[str]:
    return [event["verdict"] for event in await machine.events("step.report")]


async def test_a_report_that_comes_twice_counts_once(machine: Machine) -> None:
    desk = Desk(machine)
    async with desk.app.running():
        task = await desk.app.submit(desk.inquire())
        await until(lambda: desk.numbers == [1])
        session, step = session_of(desk.app), await desk.row(task.id)
        first, again = forged(desk.app, step, fence=step.fence), forged(desk.app, step, fence=step.fence)
        for report in (first, again):
            assert step.task_no in session.scheduler.drivers
            session.scheduler.offer(step, report)
        await machine.event("step.report", verdict="duplicate")
        desk.go.set()
        assert await within(task.result()) == ["forged", "attempt 1"]
        session.scheduler.report_alone(first)
        await until(lambda: not session.committer._waiting)
    found = await verdicts(machine)
    assert found.count("applied") == 2
    assert set(found) == {"applied", "duplicate"}
    await machine.check()


async def test_a_report_under_an_older_fence_is_stale(machine: Machine) -> None:
    desk = Desk(machine, complete_within=1.0)
    async with desk.app.running():
        task = await desk.app.submit(desk.inquire())
        await until(lambda: desk.numbers == [1])
        step = await desk.row(task.id)
        await machine.event("step.expired", task=task.id)
        session_of(desk.app).scheduler.offer(step, forged(desk.app, step, fence=step.fence))
        await machine.event("step.report", verdict="stale")
        desk.go.set()
        result = await within(task.result())
        assert "forged" not in result
    await machine.check()


async def test_a_report_after_its_deadline_is_late_though_nobody_recovered_the_attempt_yet(machine: Machine) -> None:
    desk = Desk(machine, complete_within=1.0)
    async with desk.app.running(roles=["scheduler", "agents"]):  # no Supervisor looks
        task = await desk.app.submit(desk.inquire())
        await until(lambda: desk.numbers == [1])
        await until(
            lambda: not session_of(desk.app).agents.in_flight
        )  # the Agent stopped at the deadline and said nothing
        assert await verdicts(machine) == []
        step = await desk.row(task.id)
        session_of(desk.app).scheduler.offer(step, forged(desk.app, step, fence=step.fence))
        await machine.event("step.report", verdict="late")
        assert (await desk.row(task.id)).state == "running"
        desk.go.set()
        async with machine.app([], []).running(roles=["supervisor"]):
            result = await within(task.result())
        assert "forged" not in result
    await machine.check()


async def test_a_report_under_a_fence_its_scheduler_has_not_heard_of_counts_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The answer to the Take was lost; the attempt goes on from what the store says is under way. No news tell of it."""
    agent, numbers = Agent("desk"), list[int]()

    @agent.step(retry=Retry(tries=1), supervision=Supervision(attempts=2))
    async def ask(attempt: Attempt) -> int:
        numbers.append(attempt.number)
        if attempt.number == 1:
            raise Transient("busy")
        return attempt.number

    @workflow
    async def ask_once() -> int:
        return await ask()

    apply, lost = MemoryStore.apply, list[Taken]()

    async def apply_and_lose(store: MemoryStore, batch: Sequence[AnyCommand]) -> list[Answer]:
        answers = await apply(store, batch)
        taken = [answer for answer in answers if isinstance(answer, Taken) and answer.dispatches]
        if taken and not lost:
            lost.extend(taken)
            raise StoreError("the test lost the answer")
        return answers

    async def no_news(*_: object) -> list[tuple[int, int]]:
        return []

    monkeypatch.setattr(MemoryStore, "apply", apply_and_lose)
    monkeypatch.setattr(MemoryStore, "load_news", no_news)
    async with testing.running(App("desk", agents=[agent], workflows=[ask_once])) as world:
        task = await world.app.submit(ask_once())
        assert await within(task.result()) == 2
    assert len(lost) == 1
    assert numbers == [1, 2]


async def test_a_report_of_a_step_that_does_not_exist_is_dropped(machine: Machine) -> None:
    desk = Desk(machine)
    async with desk.app.running():
        task = await desk.app.submit(desk.inquire())
        await until(lambda: desk.numbers == [1])
        session, step = session_of(desk.app), await desk.row(task.id)
        session.scheduler.report_alone(Reported(step.step_no + 77, 1, Succeeded("1"), desk.app.session.store.now()))
        desk.go.set()
        assert await within(task.result()) == ["attempt 1", "attempt 1"]
    assert await verdicts(machine) == ["applied", "applied"]
    await machine.check()


async def test_a_report_for_a_task_that_ended_is_kept_and_changes_nothing(machine: Machine) -> None:
    desk = Desk(machine)
    desk.go.set()
    async with desk.app.running():
        task = await desk.app.submit(desk.inquire())
        assert await within(task.result()) == ["attempt 1", "attempt 1"]
        for fence in (0, 1):
            step = await desk.row(task.id)
            session_of(desk.app).scheduler.report_alone(forged(desk.app, step, fence=fence))
        await machine.event("step.report", verdict="duplicate")
        assert await within(task.result()) == ["attempt 1", "attempt 1"]
    assert await verdicts(machine) == ["applied", "applied", "stale", "duplicate"]
    await machine.check()
