"""Endings that are cancelled end all the same: nothing goes on that nobody owns, and whoever waits is answered."""

import asyncio
import logging
import sqlite3
import threading
import types
from collections.abc import AsyncIterator, Callable, Coroutine, Generator
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from runtime_world import Machine, session_of, until, within
from threads_of_test import NewThreads

from arriero import Agent, App, Attempt, InvalidInput, StoreError, workflow
from arriero.runtime import agent_host, attempt_run
from arriero.runtime import node as node_module
from arriero.runtime import shutdown as ending
from arriero.runtime.shutdown import finish

AWAITS_MAX = 200


# --- cancelling at each await in turn
@types.coroutine
def cancelled_at(work: Coroutine[Any, Any, Any], nth: int, fell: list[int]) -> Generator[Any, Any, Any]:
    """Drive ``work``; where it waits for the nth time its task is cancelled, and ``fell`` notes that."""
    waits = 0
    send: Callable[[], Any] = lambda: work.send(None)  # noqa: E731  # replaced at each turn
    while True:
        try:
            waited_for = send()
        except StopIteration as end:
            return end.value
        waits += 1
        if waits == nth:
            fell.append(nth)
            task = asyncio.current_task()
            assert task is not None
            asyncio.get_running_loop().call_soon(task.cancel)
        try:
            yield waited_for
        except BaseException as error:
            send = lambda error=error: work.throw(error)  # noqa: E731
        else:
            send = lambda: work.send(None)  # noqa: E731


async def with_a_cancellation(work: Coroutine[Any, Any, Any], nth: int) -> bool:
    """Carry it out in a task of its own. False: it ended before it had waited so often."""
    fell: list[int] = []

    async def carried_out() -> None:
        await cancelled_at(work, nth, fell)

    task = asyncio.create_task(carried_out())
    await within(asyncio.wait({task}))
    if fell:
        assert task.cancelled() or task.exception() is None, task.exception()
    else:
        task.result()
    return bool(fell)


new_threads = NewThreads()


@pytest.fixture(autouse=True)
def note_threads() -> None:
    global new_threads
    new_threads = NewThreads()


async def nothing_goes_on(app: App) -> None:
    """No task, no thread and nothing open is left of an App."""
    assert (app.session.node, app.session._store, app.session.submissions, app.session.users) == (None, None, None, 0)
    await until(lambda: not new_threads.names())
    await until(lambda: asyncio.all_tasks() == {asyncio.current_task()})


class Road:
    """An Agent with a resource and a step that goes on for as long as it is held."""

    def __init__(self) -> None:
        self.held = asyncio.Event()
        self.began = self.effects = self.opened = 0
        agent = self.agent = Agent("road")

        @agent.resource
        async def mule() -> AsyncIterator[int]:
            self.opened += 1
            yield self.opened
            self.opened -= 1

        @agent.step(complete_within=30)
        async def walk(attempt: Attempt) -> str:
            self.began += 1
            await self.held.wait()
            self.effects += 1
            return "there"

        @workflow
        async def journey() -> str:
            return await walk()

        self.journey = journey

    def app(self, machine: Machine) -> App:
        return machine.app([self.agent], [self.journey])


async def test_a_drain_cancelled_at_any_of_its_awaits_leaves_nothing_and_the_task_still_ends_once(
    tmp_path: Path,
) -> None:
    for nth in count(1):
        assert nth < AWAITS_MAX
        machine, road = Machine(tmp_path / f"{nth}.db"), Road()
        app = road.app(machine)
        running = app.running()
        await running.__aenter__()
        task = await app.submit(road.journey())
        await until(lambda road=road: road.began == 1)
        asyncio.get_running_loop().call_later(0.02, road.held.set)
        was_cancelled = await with_a_cancellation(running.__aexit__(None, None, None), nth)
        await nothing_goes_on(app)
        assert road.opened == 0
        done = road.effects
        road.held.set()
        async with app.running():
            assert await within(app.task(task.id, road.journey).result()) == "there"
        # An attempt that was cut off is in doubt and begins again; one that had its effect before is recorded, or in doubt.
        assert road.effects in (done + 1, max(done, 1))
        await machine.check()
        if not was_cancelled:
            assert nth > 5
            return


async def test_a_start_cancelled_at_any_of_its_awaits_leaves_nothing(tmp_path: Path) -> None:
    for nth in count(1):
        assert nth < AWAITS_MAX
        machine, road = Machine(tmp_path / f"{nth}.db"), Road()
        app = road.app(machine)
        running = app.running()
        if not await with_a_cancellation(running.__aenter__(), nth):
            await running.__aexit__(None, None, None)
            assert nth > 3
            return
        await nothing_goes_on(app)
        assert road.opened == 0


async def test_a_closing_cancelled_at_any_of_its_awaits_leaves_nothing_and_answers_whoever_submits(
    tmp_path: Path,
) -> None:
    for nth in count(1):
        assert nth < AWAITS_MAX
        machine, road = Machine(tmp_path / f"{nth}.db"), Road()
        app = road.app(machine)
        client = await app.__aenter__()
        submitted = [asyncio.create_task(client.submit(road.journey(), task_id=f"t{n}")) for n in range(3)]
        await asyncio.sleep(0)
        was_cancelled = await with_a_cancellation(app.__aexit__(None, None, None), nth)
        answers = await within(asyncio.gather(*submitted, return_exceptions=True))
        await nothing_goes_on(app)
        async with app:
            for number, answer in enumerate(answers):
                if not isinstance(answer, BaseException):
                    assert (await app.task(f"t{number}").view()).state == "pending"
                else:
                    assert isinstance(answer, StoreError | InvalidInput)
        if not was_cancelled:
            return


async def test_a_lost_process_that_is_left_while_it_begins_again_leaves_nothing(tmp_path: Path) -> None:
    for nth in range(1, 8):
        machine, road = Machine(tmp_path / f"{nth}.db"), Road()
        app = road.app(machine)
        running = app.running()
        await running.__aenter__()
        await app.submit(road.journey())
        await until(lambda road=road: road.began == 1)
        session_of(app).lost.set()
        await with_a_cancellation(running.__aexit__(None, None, None), nth)
        await nothing_goes_on(app)
        assert road.opened == 0


async def test_whoever_submits_while_a_cancelled_closing_waits_for_another_program_is_answered(
    machine: Machine,
) -> None:
    road = Road()
    app = road.app(machine)
    other = sqlite3.connect(machine.path, isolation_level=None)
    async with app:
        pass
    client = await app.__aenter__()
    other.execute("BEGIN IMMEDIATE")
    first = asyncio.create_task(client.submit(road.journey(), task_id="first"))
    await until(lambda: client.session.submissions is not None and client.session.submissions._committer._batch)
    second = asyncio.create_task(client.submit(road.journey(), task_id="second"))
    await until(lambda: client.session.submissions is not None and client.session.submissions._committer._waiting)
    closing = asyncio.create_task(app.__aexit__(None, None, None))
    await asyncio.sleep(0)
    closing.cancel()
    with pytest.raises(StoreError, match="being closed"):  # at once: it has not been sent
        await within(second)
    assert not first.done()
    other.execute("ROLLBACK")
    assert (await within(first)).id == "first"
    with pytest.raises(asyncio.CancelledError):
        await within(closing)
    await nothing_goes_on(app)
    other.close()


async def test_whoever_waits_for_a_result_while_the_app_closes_is_told_so(machine: Machine) -> None:
    road = Road()
    app = road.app(machine)
    async with app:
        task = await app.submit(road.journey())
        waits = asyncio.create_task(task.result())
        await until(lambda: app.session.waiting.is_awaited())
    with pytest.raises(InvalidInput, match="the App was closed while a result was waited for; the task continues"):
        await within(waits)


async def test_what_cannot_be_closed_keeps_the_rest_from_nothing(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    road = Road()
    app = road.app(machine)
    client = await app.__aenter__()

    async def broken() -> None:
        raise MemoryError

    monkeypatch.setattr(client.session.waiting, "close", broken)
    with pytest.raises(MemoryError):
        await app.__aexit__(None, None, None)
    await nothing_goes_on(app)


async def test_a_drain_that_breaks_drops_everything(machine: Machine) -> None:
    road = Road()
    app = road.app(machine)
    with pytest.raises(MemoryError):
        async with app.running():
            await app.submit(road.journey())
            await until(lambda: road.began == 1)

            def broken() -> None:
                raise MemoryError

            session_of(app).scheduler.drain = broken  # type: ignore[method-assign]
    await nothing_goes_on(app)
    assert (road.effects, road.opened) == (0, 0)


async def test_finish_carries_work_out_hurries_it_and_passes_the_cancellation_on() -> None:
    began, ends = asyncio.Event(), asyncio.Event()
    hurried: list[int] = []

    async def work() -> int:
        began.set()
        await ends.wait()
        return 7

    task = asyncio.create_task(finish(work(), hurry=lambda: hurried.append(1)))
    await within(began.wait())
    for times in (1, 2):
        task.cancel()
        await until(lambda times=times: len(hurried) == times)
    ends.set()
    with pytest.raises(asyncio.CancelledError):
        await within(task)
    assert await finish(work()) == 7


# --- steps that swallow their cancellation
class Stubborn:
    """An Agent whose step swallows each cancellation until it is let go."""

    def __init__(self, complete_within: float) -> None:
        self.began = 0
        self.swallowed = 0
        self.let_go = asyncio.Event()
        agent = self.agent = Agent("stubborn")

        @agent.step(complete_within=complete_within)
        async def stay(attempt: Attempt) -> str:
            self.began += 1
            while self.began == 1 and not self.let_go.is_set():
                try:
                    await self.let_go.wait()
                except asyncio.CancelledError:
                    self.swallowed += 1
            return f"call {self.began}"

        @workflow
        async def pause() -> str:
            return await stay()

        self.pause = pause

    def app(self, machine: Machine) -> App:
        return machine.app([self.agent], [self.pause])


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (agent_host, attempt_run, node_module, ending):
        monkeypatch.setattr(module, "CANCELLED_SECONDS_MAX", 0.05)


@pytest.mark.usefixtures("short")
async def test_leaving_waits_for_a_step_that_swallows_its_cancellation_only_so_long_and_names_it(
    machine: Machine, caplog: pytest.LogCaptureFixture
) -> None:
    mule = Stubborn(complete_within=0.2)
    app = mule.app(machine)
    async with app.running():
        await app.submit(mule.pause(), task_id="t")
        await until(lambda: mule.began == 1)
    (left,) = [record for record in caplog.records if "left behind" in record.message]
    assert left.levelno == logging.ERROR
    assert left.message.startswith("attempt 1 of step stay of task t continues 0.05 s after it was cancelled")
    assert mule.swallowed == 1
    assert [event["process"] for event in await machine.events("process.retired")] == [1]  # its time was over
    mule.let_go.set()
    async with app.running():
        assert await within(app.task("t", mule.pause).result()) == "call 2"
    assert await machine.events("step.late") == []
    await machine.check()


@pytest.mark.usefixtures("short")
async def test_a_cancelled_drain_whose_step_goes_on_in_its_time_leaves_its_lease_to_run_out(machine: Machine) -> None:
    """To say that nothing is held would let another process begin the attempt beside the one that still runs."""
    mule = Stubborn(complete_within=30)
    app = mule.app(machine)
    running = app.running()
    await running.__aenter__()
    await app.submit(mule.pause(), task_id="t")
    await until(lambda: mule.began == 1)
    leaving = asyncio.create_task(running.__aexit__(None, None, None))
    await until(lambda: app.session.node is None)
    leaving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await within(leaving)
    assert mule.swallowed == 1
    assert await machine.events("process.retired") == []
    mule.let_go.set()
    await until(lambda: not new_threads.names())
    async with app.running():
        assert await within(app.task("t", mule.pause).result()) == "call 2"
    (retired,) = [event for event in await machine.events("process.retired") if event["process"] == 1]
    assert retired != []
    assert [event["attempt"] for event in await machine.events("step.dispatched")] == [1, 1]
    await machine.check()


async def test_a_cancelled_drain_whose_plain_step_goes_on_in_its_thread_leaves_its_lease_to_run_out(
    machine: Machine,
) -> None:
    began, ends = threading.Event(), threading.Event()
    agent = Agent("threads")

    @agent.step
    def plain(attempt: Attempt) -> str:
        began.set()
        assert ends.wait(20)
        return "done"

    app = machine.app([agent], [])
    running = app.running()
    await running.__aenter__()
    await app.submit(plain(), task_id="t")
    await until(began.is_set)
    leaving = asyncio.create_task(running.__aexit__(None, None, None))
    await until(lambda: app.session.node is None)
    leaving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await within(leaving)
    assert await machine.events("process.retired") == []
    ends.set()
    async with app.running():
        assert await within(app.task("t").result()) == "done"
    await machine.check()


@pytest.mark.usefixtures("short")
async def test_a_function_that_swallows_its_cancellation_as_it_is_told_of_an_alert_keeps_nobody(
    machine: Machine, caplog: pytest.LogCaptureFixture
) -> None:
    told, let_go = asyncio.Event(), asyncio.Event()

    @workflow
    async def buggy() -> None:
        raise ZeroDivisionError

    app = machine.app([], [buggy])

    @app.on_alert
    async def stay(alert: object) -> None:
        told.set()
        while not let_go.is_set():
            with suppress(asyncio.CancelledError):
                await let_go.wait()

    async with app.running():
        await app.submit(buggy())
        await within(told.wait())
    assert any("Alerting.run" in message and "left behind" in message for message in caplog.messages)
    let_go.set()
    await nothing_goes_on(app)


@pytest.mark.usefixtures("short")
def test_the_front_without_a_loop_leaves_a_step_that_swallows_its_cancellation(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("arriero.client.background.CANCELLED_SECONDS_MAX", 0.05)
    swallowed: list[int] = []
    agent = Agent("stubborn")

    @agent.step(complete_within=0.2)
    async def stay(attempt: Attempt) -> None:
        while True:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                swallowed.append(attempt.number)

    app = machine.app([agent], [])
    with app.sync.running() as front:
        front.submit(stay())
        while not swallowed:
            threading.Event().wait(0.01)
    assert new_threads.names() == []
    assert app.session.node is None


def test_an_interrupted_drain_of_the_front_without_a_loop_drops_everything(machine: Machine) -> None:
    road = Road()
    app = road.app(machine)
    roles = app.sync.running()
    front = roles.__enter__()
    front.submit(road.journey())
    while road.began == 0:
        threading.Event().wait(0.01)

    background = front._background
    kept = background._wait_for_result

    def interrupt_the_first(call: Any) -> Any:
        background._wait_for_result = kept  # type: ignore[method-assign]
        call.cancel()
        raise KeyboardInterrupt

    background._wait_for_result = interrupt_the_first  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt):
        roles.__exit__(None, None, None)
    assert new_threads.names() == []
    assert (app.session.node, app.session._store, road.effects, road.opened) == (None, None, 0, 0)
