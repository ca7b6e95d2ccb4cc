"""What a machine's short trouble leaves: no place of an Agent is lost or given twice, and no task stands still."""

import asyncio
import threading
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
from runtime_world import Write, around_commits, session_in

import arriero
from arriero import Agent, App, Attempt, Retry, StoreError, Supervision, TaskCompensated, testing, workflow
from arriero.model import Loaded, StepState
from arriero.model.answers import Answer, Taken
from arriero.model.commands import Advance, AnyCommand, Claim, Take
from arriero.runtime.ports import SystemPorts
from arriero.store.contract import Busy


class Narrow:
    """One Agent with few places, whose steps wait for a gate each."""

    def __init__(self, places: int) -> None:
        self.gates = [asyncio.Event() for _ in range(20)]
        self.inside = self.most = self.begun = 0
        agent = Agent("narrow", max_in_flight=places)

        @agent.step(complete_within=5_000)
        async def one(attempt: Attempt) -> int:
            number, self.begun = self.begun, self.begun + 1
            self.inside += 1
            self.most = max(self.most, self.inside)
            try:
                await self.gates[number].wait()
            finally:
                self.inside -= 1
            return number

        @workflow
        async def work() -> int:
            return await one()

        self.app, self.work = App("narrow", agents=[agent], workflows=[work]), work


async def test_a_take_that_another_transaction_kept_busy_gives_its_places_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    narrow = Narrow(1)
    async with testing.running(narrow.app) as world:
        is_busy = True

        async def busy(write: Write, batch: Sequence[AnyCommand]) -> list[Any]:
            takes = [command for command in batch if isinstance(command, Take) and is_busy]
            rest = [command for command in batch if command not in takes]
            answers = iter(await write(rest) if rest else [])
            return [Busy("locked") if command in takes else next(answers) for command in batch]

        around_commits(world, monkeypatch, busy)
        tasks = [await world.app.submit(narrow.work()) for _ in range(2)]
        await world.clock.advance(1)
        for gate in narrow.gates:
            gate.set()
        await world.clock.advance(20)
        assert session_in(world).agents.count_leaked_places() == 0
        is_busy = False
        assert sorted([await task.result() for task in tasks]) == [0, 1]


async def test_places_of_a_take_that_is_lost_while_another_is_looked_for_are_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    narrow = Narrow(2)
    async with testing.running(narrow.app) as world:
        losses = 0
        load_held, is_first = world._store.load_held, True

        async def losing(write: Write, batch: Sequence[AnyCommand]) -> list[Answer]:
            nonlocal losses
            answers: list[Answer] = await write(batch)
            if losses and any(isinstance(answer, Taken) and answer.dispatches for answer in answers):
                losses -= 1
                raise StoreError("lost")
            return answers

        async def slow_look(process_no: int, limit: int) -> list[Loaded]:
            nonlocal is_first
            found = await load_held(process_no, limit)
            if is_first:
                is_first = False
                narrow.gates[1].set()  # a place comes free, and its Take is lost as well
                await world._ports.clock.sleep(1)
            return found

        around_commits(world, monkeypatch, losing)
        for _ in range(10):
            await world.app.submit(narrow.work())
        await world.clock.advance(0.2)
        losses = 2
        monkeypatch.setattr(world._store, "load_held", slow_look)
        narrow.gates[0].set()
        await world.clock.advance(30)
        assert (losses, narrow.most) == (0, 2)
        assert session_in(world).agents.count_leaked_places() == 0


async def test_a_plain_function_whose_thread_could_not_be_started_is_not_called_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    agent = Agent("plain", max_in_flight=2)
    called: list[int] = []

    @agent.step(complete_within=5, retry=Retry(tries=1), supervision=Supervision(attempts=1), effect_free=True)
    def one(attempt: Attempt, number: int) -> int:
        called.append(number)
        return number

    @workflow
    async def work(number: int) -> int:
        return await one(number)

    async with testing.running(App("plain", agents=[agent], workflows=[work])) as world:
        monkeypatch.setattr(world._ports, "run_in_thread", SystemPorts().run_in_thread)
        start, left = threading.Thread.start, 1

        def failing(thread: threading.Thread) -> None:
            nonlocal left
            if left and thread.name.startswith("arriero-plain"):
                left -= 1
                raise RuntimeError("can't start new thread")
            start(thread)

        monkeypatch.setattr(threading.Thread, "start", failing)
        with pytest.raises(TaskCompensated, match="can't start new thread"):
            await (await world.app.submit(work(1))).result()
        assert session_in(world).agents.count_leaked_places() == 0
        assert await (await world.app.submit(work(2))).result() == 2
    assert called == [2]


async def test_a_task_that_could_not_even_be_held_is_read_again_and_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    agent = Agent("steady")

    @agent.step(complete_within=86_400)
    async def long(attempt: Attempt) -> None:
        await let_go.wait()

    @agent.step
    async def one(attempt: Attempt) -> str:
        return "fired"

    let_go = asyncio.Event()

    async def after_a_while() -> str:
        await arriero.sleep(1.5)
        return await one()

    @workflow
    async def work() -> str:
        return (await asyncio.gather(after_a_while(), long()))[0]

    async with testing.running(App("steady", agents=[agent], workflows=[work])) as world:
        failed, is_short = 0, False

        async def short(write: Write, batch: Sequence[AnyCommand]) -> list[Answer]:
            nonlocal failed
            if is_short and not any(isinstance(command, Claim) for command in batch):
                failed += 1
                raise MemoryError("short")
            answers: list[Answer] = await write(batch)
            return answers

        around_commits(world, monkeypatch, short)
        task = await world.app.submit(work())
        await world.clock.advance(1.4)
        is_short = True
        await world.clock.advance(1.0)
        is_short = False
        assert failed >= 4  # the advance and its hold, each sent once more
        await world.clock.advance(30)
        let_go.set()
        assert await task.result() == "fired"


async def test_what_came_in_counts_although_the_transition_with_it_cannot_be_written(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    agent = Agent("shop")

    @agent.step
    async def charge(attempt: Attempt) -> str:
        return "booked"

    @agent.step
    async def ship(attempt: Attempt) -> None: ...

    @workflow
    async def work() -> None:
        await charge()
        await ship()

    async with testing.running(App("shop", agents=[agent], workflows=[work])) as world:

        async def unwritable(write: Write, batch: Sequence[AnyCommand]) -> list[Answer]:
            if any(isinstance(c, Advance) and any(new.name == "ship" for new in c.opened) for c in batch):
                raise ValueError("cannot be written")
            answers: list[Answer] = await write(batch)
            return answers

        around_commits(world, monkeypatch, unwritable)
        task = await world.app.submit(work())
        with pytest.raises(arriero.TaskFailed, match="could not be written"):
            await task.result()
        (step,) = world._store.load_as_is(await task._find_number()).steps
        assert (step.state, step.in_doubt) == (StepState.COMPLETED, False)


async def test_a_report_whose_task_cannot_be_read_for_a_while_is_not_lost() -> None:
    agent = Agent("shop")
    gate = asyncio.Event()
    calls: list[int] = []

    @agent.step(complete_within=60)
    async def charge(attempt: Attempt) -> str:
        calls.append(attempt.number)
        await gate.wait()
        return "booked"

    @workflow
    async def work() -> str:
        return await charge()

    async with testing.running(App("shop", agents=[agent], workflows=[work])) as world:
        task = await world.app.submit(work())
        await world.clock.advance(0.5)
        number, store = await task._find_number(), world._store
        policy = store.tasks[number].policy
        store.tasks[number] = msgspec.structs.replace(store.tasks[number], policy="{")
        gate.set()
        await world.clock.advance(5)
        store.tasks[number] = msgspec.structs.replace(store.tasks[number], policy=policy)
        await world.clock.advance(30)
        assert await task.result() == "booked"
    assert calls == [1]


async def test_a_process_whose_committer_has_ended_begins_again(monkeypatch: pytest.MonkeyPatch) -> None:
    agent = Agent("steady")

    @agent.step
    async def one(attempt: Attempt) -> str:
        return "done"

    @workflow
    async def work() -> str:
        return await one()

    async with testing.running(App("steady", agents=[agent], workflows=[work])) as world:
        first = session_in(world)

        async def cancelled(write: Write, batch: Sequence[AnyCommand]) -> list[Answer]:
            raise asyncio.CancelledError  # no exception that a loop goes on after, and nobody asked for it

        around_commits(world, monkeypatch, cancelled)
        task = await world.app.submit(work())
        await world.clock.advance(30)
        assert session_in(world) is not first
        assert await task.result() == "done"
