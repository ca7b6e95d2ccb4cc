"""A task begins with the commit that brings it, where its code can run before that and nothing else waits."""

import asyncio
from typing import Any

import pytest
from runtime_world import Machine, session_of, until, within

import arriero
from arriero import Agent, App, Attempt, InvalidInput, StoreError, Task, workflow

AT_ONCE = ["task.submitted", "task.claimed", "step.opened", "step.dispatched"]


class Desk:
    """An Agent with one place, and workflows of one step."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.calls: list[int] = []
        self.gate = asyncio.Event()
        self.gate.set()
        agent = Agent("desk", max_in_flight=1)

        @agent.step
        async def stamp(attempt: Attempt, number: int) -> int:
            self.calls.append(number)
            await self.gate.wait()
            return number

        @workflow
        async def one(number: int) -> int:
            return await stamp(number)

        @workflow
        async def dated(number: int) -> int:
            arriero.now()
            return await stamp(number)

        @workflow
        async def empty(number: int) -> int:
            return number

        @workflow
        async def broken(number: int) -> int:
            raise ValueError(number)

        self.one, self.dated, self.empty, self.broken = one, dated, empty, broken
        self.app: App = machine.app([agent], [one, dated, empty, broken])

    async def caught_up(self) -> None:
        """A first task has come by a claim: from here on the process knows that nothing waits."""
        await within((await self.app.submit(self.one(0))).result())
        self.calls.clear()

    async def first_events(self, task: Task[Any]) -> list[str]:
        """The first events of a task, as many as one that begins at once has in its first commit."""
        events = [event["type"] for event in await self.machine.events() if event.get("task") == task.id]
        return events[: len(AT_ONCE)]


@pytest.fixture
def desk(machine: Machine) -> Desk:
    return Desk(machine)


async def commits(desk: Desk, task: Task[Any]) -> int:
    """How many commits a task took so far."""
    store = session_of(desk.app)._store
    found = await store.find(task.id)
    assert found is not None
    return found.task.link


async def test_its_first_step_runs_after_one_commit(desk: Desk) -> None:
    async with desk.app.running():
        await desk.caught_up()
        desk.gate.clear()
        task = await desk.app.submit(desk.one(1))
        await until(lambda: desk.calls == [1])
        assert await commits(desk, task) == 1
        desk.gate.set()
        assert await within(task.result()) == 1
        assert await commits(desk, task) == 2
    assert await desk.first_events(task) == AT_ONCE
    await desk.machine.check()


@pytest.mark.parametrize("name", ["dated", "empty"])
async def test_code_that_looks_at_the_time_or_asks_for_nothing_begins_by_a_claim(desk: Desk, name: str) -> None:
    async with desk.app.running():
        await desk.caught_up()
        task = await desk.app.submit(getattr(desk, name)(1))
        assert await within(task.result()) == 1
        assert await commits(desk, task) > 2
    await desk.machine.check()


async def test_code_that_breaks_is_told_as_ever_and_costs_no_submission(desk: Desk) -> None:
    async with desk.app.running():
        await desk.caught_up()
        task = await desk.app.submit(desk.broken(1))
        with pytest.raises(arriero.TaskFailed):
            await within(task.result())
    await desk.machine.check()


async def test_a_known_id_gives_back_the_place_that_was_taken_for_it(desk: Desk) -> None:
    async with desk.app.running():
        await desk.caught_up()
        first = await desk.app.submit(desk.one(1), task_id="t")
        assert await within(first.result()) == 1
        again = await desk.app.submit(desk.one(1), task_id="t")
        assert await within(again.result()) == 1
        with pytest.raises(InvalidInput, match="another body"):
            await desk.app.submit(desk.one(2), task_id="t")
        assert await within((await desk.app.submit(desk.one(3))).result()) == 3
    assert desk.calls == [1, 3]
    await desk.machine.check()


async def test_a_task_whose_answer_was_lost_is_found_among_the_news_and_ends_once(desk: Desk) -> None:
    async with desk.app.running():
        await desk.caught_up()
        submitter: Any = desk.app._submitter
        write = submitter._write

        async def loses_its_answer(batch: Any) -> Any:
            submitter._write = write
            await write(batch)
            raise StoreError("store: cut off")

        submitter._write = loses_its_answer
        task = await desk.app.submit(desk.one(1), task_id="t")
        assert await within(task.result()) == 1
        assert await desk.first_events(task) == AT_ONCE
        assert await within((await desk.app.submit(desk.one(2))).result()) == 2
    assert desk.calls == [1, 2]
    await desk.machine.check()


async def test_a_caller_who_goes_away_meanwhile_costs_the_task_nothing(desk: Desk) -> None:
    async with desk.app.running():
        await desk.caught_up()
        submitting = asyncio.create_task(desk.app.submit(desk.one(1), task_id="t"))
        await asyncio.sleep(0)  # it has asked for the commit
        submitting.cancel()
        await asyncio.gather(submitting, return_exceptions=True)
        await until(lambda: desk.calls == [1])
        assert await within((await desk.app.submit(desk.one(2))).result()) == 2
    await desk.machine.check()


async def test_a_task_whose_first_step_takes_long_is_soon_no_news_any_more(desk: Desk) -> None:
    async with desk.app.running():
        await desk.caught_up()
        desk.gate.clear()
        task = await desk.app.submit(desk.one(1))
        store = session_of(desk.app)._store
        found = await store.find(task.id)
        assert found is not None
        assert found.task.unseen_since is not None

        async def is_seen() -> bool:
            loaded = await store.load(found.task.task_no)
            return loaded is not None and loaded.task.unseen_since is None

        async with asyncio.timeout(20):
            while not await is_seen():
                await asyncio.sleep(0.05)
        desk.gate.set()
        assert await within(task.result()) == 1
    assert desk.calls == [1]
    await desk.machine.check()


async def test_whoever_leaves_the_app_while_a_task_begins_leaves_it_to_the_next(desk: Desk) -> None:
    async with desk.app.running():
        await desk.caught_up()
        submitting = asyncio.create_task(desk.app.submit(desk.one(1), task_id="t"))
        await asyncio.sleep(0)
    with_answer = (await asyncio.gather(submitting, return_exceptions=True))[0]
    assert not isinstance(with_answer, asyncio.CancelledError)
    other = Desk(desk.machine)
    async with other.app.running():
        await other.app.submit(other.one(1), task_id="t")
        assert await within(other.app.task("t", other.one).result()) == 1
    assert desk.calls + other.calls == [1]
    await desk.machine.check()


async def test_a_submission_behind_which_others_wait_is_claimed_in_their_order(desk: Desk) -> None:
    """While a claim has left something behind, what is submitted here has to wait like everything else."""
    async with desk.app.running():
        await desk.caught_up()
        session_of(desk.app).scheduler._caught_up = False
        task = await desk.app.submit(desk.one(1))
        assert await within(task.result()) == 1
        assert await commits(desk, task) == 4


async def test_a_process_that_is_declared_lost_meanwhile_begins_nothing(desk: Desk) -> None:
    async with desk.app.running():
        await desk.caught_up()
        session = session_of(desk.app)
        await session._store.retire(session.membership.process_no, by="test", known_dead=True)
        task = await desk.app.submit(desk.one(1))
        assert await within(task.result()) == 1
    assert desk.calls == [1]
    await desk.machine.check()
