"""A task begins with the commit that brings it, where its code can run before that and nothing else waits."""

import asyncio
from typing import Any

import pytest
from runtime_world import Machine, session_of, until, within

import arriero
from arriero import (
    Agent,
    App,
    Attempt,
    InvalidInput,
    Permanent,
    StoreError,
    Supervision,
    Task,
    Transient,
    Undo,
    workflow,
)
from arriero.runtime.settings import Settings
from arriero.store.sqlite.store import SqliteStore

AT_ONCE = ["task.submitted", "task.claimed", "step.opened", "step.dispatched"]


class Desk:
    """An Agent with one place, and workflows of one step."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.calls: list[int] = []
        self.at_once = self.most_at_once = 0
        self.gate = asyncio.Event()
        self.gate.set()
        agent = Agent("desk", max_in_flight=1)

        @agent.step
        async def stamp(attempt: Attempt, number: int) -> int:
            self.calls.append(number)
            self.at_once += 1
            self.most_at_once = max(self.most_at_once, self.at_once)
            try:
                await self.gate.wait()
            finally:
                self.at_once -= 1
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
        """A first task of each workflow has come by a claim: from here on the process knows the code, and that nothing waits."""
        for definition in (self.one, self.dated, self.empty):
            await within((await self.app.submit(definition(0))).result())
        with pytest.raises(arriero.TaskFailed):
            await within((await self.app.submit(self.broken(0))).result())
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


async def test_code_runs_with_its_submission_only_once_it_has_run_from_what_is_durable(desk: Desk) -> None:
    """Code that kills its process is to be found out by the losses of its task, so that has to be there."""
    async with desk.app.running():
        await desk.caught_up()
        session_of(desk.app).scheduler._proven.clear()
        first = await desk.app.submit(desk.one(1))
        assert await within(first.result()) == 1
        second = await desk.app.submit(desk.one(2))
        assert await within(second.result()) == 2
        assert (await commits(desk, first), await commits(desk, second)) == (4, 2)


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


def lose_the_next_answer(desk: Desk) -> None:
    """The next batch of submissions is written, and nobody is told."""
    submitter: Any = desk.app.session.submissions._committer
    write = submitter._write

    async def loses_its_answer(batch: Any) -> Any:
        submitter._write = write
        await write(batch)
        raise StoreError("store: cut off")

    submitter._write = loses_its_answer


async def test_the_place_of_a_task_whose_answer_was_lost_is_nobody_else_s(desk: Desk) -> None:
    async with desk.app.running():
        await desk.caught_up()
        desk.gate.clear()
        lose_the_next_answer(desk)
        tasks = [await desk.app.submit(desk.one(number), task_id=f"t{number}") for number in range(3)]
        await until(lambda: len(desk.calls) == 1)
        desk.gate.set()
        assert await within(asyncio.gather(*(task.result() for task in tasks))) == [0, 1, 2]
    assert desk.most_at_once == 1
    await desk.machine.check()


async def test_a_task_whose_answer_was_lost_is_found_among_the_news_and_ends_once(desk: Desk) -> None:
    async with desk.app.running():
        await desk.caught_up()
        session_of(desk.app).committer.left_at -= 3_600  # as after an hour in which nothing was written
        lose_the_next_answer(desk)
        task = await desk.app.submit(desk.one(1), task_id="t")
        assert await within(task.result()) == 1
        assert await desk.first_events(task) == AT_ONCE
        assert await within((await desk.app.submit(desk.one(2))).result()) == 2
    assert desk.calls == [1, 2]
    await desk.machine.check()


async def test_a_submission_that_begins_a_task_is_a_reading_until_it_is_answered(desk: Desk) -> None:
    """Its answer may name an attempt that ended meanwhile: until then the process remembers what it began."""
    async with desk.app.running():
        await desk.caught_up()
        registry = session_of(desk.app).agents.registry
        submitter: Any = desk.app.session.submissions._committer
        write, readings = submitter._write, list[set[int]]()

        async def notes_readings(batch: Any) -> Any:
            readings.append(set(registry._readings))
            return await write(batch)

        submitter._write = notes_readings
        before = registry._last_reading
        task = await desk.app.submit(desk.one(1))
        assert max(readings[0]) > before
        assert await within(task.result()) == 1
    assert not registry._readings
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
        task = await desk.app.submit(desk.one(1), task_id="t")
        await is_seen(desk, "t")
        desk.gate.set()
        assert await within(task.result()) == 1
    assert desk.calls == [1]
    await desk.machine.check()


async def test_it_is_soon_no_news_any_more_also_while_its_process_drains(desk: Desk) -> None:
    leaving = asyncio.Event()

    async def run() -> Task[int]:
        async with desk.app.running():
            await desk.caught_up()
            desk.gate.clear()
            task = await desk.app.submit(desk.one(1), task_id="t")
            leaving.set()
        return task

    running = asyncio.create_task(run())
    await leaving.wait()
    await is_seen(desk, "t")
    desk.gate.set()
    await running
    assert desk.calls == [1]
    await desk.machine.check()


async def is_seen(desk: Desk, task_id: str) -> None:
    """Wait until nothing of a task is news for its process."""
    store = SqliteStore(str(desk.machine.path))
    await store.open()
    try:
        async with asyncio.timeout(60):
            while (found := await store.find(task_id)) is None or found.task.unseen_since is not None:
                await asyncio.sleep(0.05)
    finally:
        await store.close()


async def test_an_undo_that_waits_is_put_down_again_by_whoever_claims_it(machine: Machine) -> None:
    tries = []

    def made() -> tuple[App, Any]:
        agent = Agent("hotel")

        @agent.step
        async def book(attempt: Attempt, number: int) -> int:
            return number

        @book.compensation
        async def unbook(undo: Undo[int], number: int) -> None:
            tries.append(number)
            raise Transient("busy", retry_after=90)

        @workflow(supervision=Supervision(then="compensate"))
        async def trip(number: int) -> None:
            await book(number)
            raise Permanent("no")

        return machine.app([agent], [trip], settings=Settings(lease_seconds=1.2, poll_seconds=0.02)), trip

    app, trip = made()
    async with app.running():
        await app.submit(trip(1), task_id="t")
        await machine.event("recover.applied")
    released = len(await machine.events("task.released"))
    app, _ = made()
    async with app.running():
        async with asyncio.timeout(60):
            while not any(event["why"] == "put_down" for event in (await machine.events("task.released"))[released:]):
                await asyncio.sleep(0.05)
    assert tries == [1]
    assert await machine.events("task.lost") == []


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
        await session._store.retire(session.context.process_no, by="test", known_dead=True)
        task = await desk.app.submit(desk.one(1))
        assert await within(task.result()) == 1
    assert desk.calls == [1]
    await desk.machine.check()
