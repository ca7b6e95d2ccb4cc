"""One App that is open on event loops and in threads at the same time: each has its own opening, all have one store."""

import asyncio
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from runtime_world import QUICK, SECONDS_MAX, Machine, until, within
from threads_of_test import NewThreads

from arriero import Agent, App, Attempt, DefinitionError, InvalidInput, workflow
from arriero.client.openings import Opening
from arriero.runtime import result_waiters
from arriero.store import open_store

NEVER_SECONDS = 10_000.0

echoes = Agent("echoes")


@echoes.step
async def echo(attempt: Attempt, text: str) -> str:
    return text


@workflow
async def greet(name: str) -> str:
    return "hello " + await echo(name)


@pytest.fixture
def app(machine: Machine) -> Iterator[App]:
    threads = NewThreads()
    yield machine.app([echoes], [greet])
    assert threads.names() == []


def leave(app: App) -> None:
    with app.sync:
        pass


# --- both directions
async def test_many_threads_submit_and_wait_while_an_event_loop_runs_the_app(app: App, machine: Machine) -> None:
    def request(number: int) -> str:
        return app.sync.submit(greet(f"thread {number}"), task_id=f"thread-{number}").result(SECONDS_MAX)

    async with app.running():
        with ThreadPoolExecutor(8) as pool:
            loop = asyncio.get_running_loop()
            threads = [loop.run_in_executor(pool, request, number) for number in range(24)]
            tasks = [await app.submit(greet(f"loop {number}"), task_id=f"loop-{number}") for number in range(24)]
            assert await within(asyncio.gather(*threads)) == [f"hello thread {number}" for number in range(24)]
            assert [await within(task.result()) for task in tasks] == [f"hello loop {number}" for number in range(24)]
        await asyncio.to_thread(leave, app)
        assert await within(app.execute(greet("afterwards"))) == "hello afterwards"
    await machine.check()


def test_an_event_loop_submits_and_waits_while_the_app_runs_in_the_background_thread(
    app: App, machine: Machine
) -> None:
    async def serve() -> list[str]:
        async with app:
            tasks = [await app.submit(greet(str(number)), task_id=f"t-{number}") for number in range(8)]
            return [await within(task.result()) for task in tasks]

    with app.sync.running() as front:
        assert asyncio.run(serve()) == [f"hello {number}" for number in range(8)]
        assert front.execute(greet("still"), timeout=SECONDS_MAX) == "hello still"
    asyncio.run(machine.check())


def test_one_event_loop_runs_the_app_and_another_one_submits(app: App, machine: Machine) -> None:
    runs, is_over = threading.Event(), threading.Event()

    async def run() -> None:
        async with app.running():
            runs.set()
            await asyncio.to_thread(is_over.wait)

    async def submit() -> str:
        async with app:
            return await within(app.execute(greet("mule")))

    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(asyncio.run, run())
        runs.wait()
        assert asyncio.run(submit()) == "hello mule"
        is_over.set()
        running.result()
    asyncio.run(machine.check())


async def test_who_waits_on_another_event_loop_is_answered_without_asking_the_store(
    app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(result_waiters, "ASK_SECONDS", NEVER_SECONDS)
    monkeypatch.setattr(result_waiters, "ASK_SECONDS_MAX", NEVER_SECONDS)
    is_to_end = asyncio.Event()
    gates = Agent("gates")

    @gates.step
    async def wait(attempt: Attempt) -> str:
        await is_to_end.wait()
        return "open"

    @workflow
    async def pass_gate() -> str:
        return await wait()

    app = App("gates", agents=[gates], workflows=[pass_gate], store=app.session.given_store)
    async with app.running():
        waits = asyncio.create_task(asyncio.to_thread(app.sync.execute, pass_gate(), task_id="t"))
        await until(lambda: any(one.waiting.is_awaited() for one in app.session.openings.list_all()))
        is_to_end.set()
        assert await within(waits) == "open"
        await asyncio.to_thread(leave, app)


async def test_a_submission_from_a_thread_wakes_the_scheduler_of_the_event_loop(
    app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with app.running():
        node, hinted = app.session.node, asyncio.Event()
        assert node is not None
        monkeypatch.setattr(node, "hint", hinted.set)
        await asyncio.to_thread(app.sync.submit, greet("mule"), task_id="t")
        await within(hinted.wait())
        await asyncio.to_thread(leave, app)


# --- closing in each order
async def test_a_thread_that_waits_outlives_the_event_loop_s_opening(app: App) -> None:
    async with app:
        waits = asyncio.create_task(asyncio.to_thread(app.sync.execute, greet("mule"), task_id="t"))
        await until(lambda: any(one.waiting.is_awaited() for one in app.session.openings.list_all()))
    assert (app.session.is_open, app.session.users) == (False, 1)
    with pytest.raises(InvalidInput, match="App machine is not open on this event loop"):
        await app.task("t").view()
    async with app.running():
        assert await within(waits) == "hello mule"
    assert await asyncio.to_thread(lambda: app.sync.task("t").view().state) == "processed"
    await asyncio.to_thread(leave, app)
    assert app.session.users == 0


async def test_the_event_loop_goes_on_when_the_threads_have_closed(app: App) -> None:
    async with app:
        for number in range(2):
            await asyncio.to_thread(app.sync.submit, greet("mule"), task_id=f"t-{number}")
            await asyncio.to_thread(leave, app)
        assert await app.tasks(state="pending").count() == 2


async def test_users_on_one_event_loop_that_come_together_open_it_once(
    app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = []

    async def enter(number: int, everybody: asyncio.Barrier) -> None:
        async with app:
            opened.append(app.session.store)
            await everybody.wait()
            await app.submit(greet("mule"), task_id=f"t-{number}")

    await within(asyncio.gather(*(enter(number, barrier) for barrier in [asyncio.Barrier(5)] for number in range(5))))
    assert len({id(store) for store in opened}) == 1
    assert not app.session.is_open


async def test_who_opens_it_while_the_last_user_leaves_has_an_open_app(
    app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with AsyncExitStack() as stack:
        async with app:
            waiting = app.session.waiting
            close = waiting.close

            async def close_when_the_next_is_in() -> None:
                await stack.enter_async_context(app)
                await close()

            monkeypatch.setattr(waiting, "close", close_when_the_next_is_in)
        assert (await (await app.submit(greet("mule"), task_id="t")).view()).state == "pending"
    assert not app.session.is_open


def test_an_event_loop_that_was_closed_with_the_app_open_bars_nobody(app: App) -> None:
    async def open_and_submit(task_id: str) -> None:
        await app.session.__aenter__()
        await app.submit(greet("mule"), task_id=task_id)

    abandoned = asyncio.new_event_loop()
    abandoned.run_until_complete(open_and_submit("first"))
    store, ports = app.session._store, app.session.ports
    assert store is not None
    abandoned.run_until_complete(store.close())  # as the end of the process would
    abandoned.run_until_complete(app.session.openings.find(abandoned).submissions.close())  # type: ignore[union-attr]  # it submitted
    ports.close()  # type: ignore[attr-defined]  # the machine's
    abandoned.close()
    assert app.session.users == 0
    with app.sync as front:
        assert front.task("first").view().state == "pending"

    async def open_again() -> str:
        async with app:
            return (await app.task("first").view()).state

    assert asyncio.run(open_again()) == "pending"


def test_an_event_loop_that_was_closed_while_the_app_was_open_on_it_leaves_no_store_behind(
    machine: Machine, tmp_path: Path
) -> None:
    app = machine.app([echoes], [greet])
    abandoned = asyncio.new_event_loop()
    given = open_store(f"sqlite:///{tmp_path}/given.db")
    abandoned.run_until_complete(app.session.open(given))
    abandoned.run_until_complete(given.close())  # as the end of the process would
    abandoned.close()
    assert not app.session.is_open
    with pytest.raises(InvalidInput, match="is not open"):
        _ = app.store
    with app.sync:
        assert app.store == machine.url


class GivenBack(Opening):
    """An opening that another thread gives back after one look at it."""

    def __getattribute__(self, name: str) -> Any:
        value = super().__getattribute__(name)
        if name in ("loop", "target", "configuration", "node"):
            setattr(self, name, None)
        return value


async def test_an_opening_that_another_thread_gives_back_meanwhile_disturbs_nobody(app: App, machine: Machine) -> None:
    openings, elsewhere = app.session.openings, asyncio.new_event_loop()

    def leave_elsewhere(**parts: Any) -> None:
        openings.by_loop[elsewhere] = GivenBack(lambda: app.session.ports)
        vars(openings.by_loop[elsewhere]).update(parts)

    leave_elsewhere(target=open_store(machine.url), process=os.getpid())
    async with app:
        leave_elsewhere(target=open_store(machine.url))
        openings.refuse_other_store(openings.find(), open_store(machine.url))
        leave_elsewhere(target=open_store("memory://"))
        with pytest.raises(InvalidInput, match="App machine is open on memory://"):
            openings.refuse_other_store(openings.find(), open_store(machine.url))
        leave_elsewhere(node=SimpleNamespace(hint=lambda: None), loop=elsewhere)
        app.session.hint()
        leave_elsewhere(loop=elsewhere)
        openings.by_loop[elsewhere].run(lambda: None)
        del openings.by_loop[elsewhere]
    elsewhere.close()


# --- refused
async def test_running_it_on_an_event_loop_and_in_the_background_is_refused(app: App) -> None:
    def run_too() -> None:
        with app.sync.running():
            raise AssertionError("never reached")

    async with app.running():
        with pytest.raises(InvalidInput, match="App machine is running already in this process"):
            await asyncio.to_thread(run_too)


async def test_of_two_that_begin_to_run_it_at_the_same_time_one_is_refused(app: App, machine: Machine) -> None:
    may_end = asyncio.Event()

    async def run() -> str:
        try:
            async with app.running():
                await may_end.wait()
                return await within(app.execute(greet("mule")))  # its Scheduler is still the one of the App
        except InvalidInput as error:
            return str(error)
        finally:
            may_end.set()

    answers = sorted(await within(asyncio.gather(run(), run())))
    assert answers == ["App machine is running already in this process", "hello mule"]
    async with app.running():  # the claim of the refused one is gone
        assert await within(app.execute(greet("again"))) == "hello again"
    await machine.check()


async def test_threads_join_the_store_that_the_event_loop_was_given(app: App, machine: Machine, tmp_path: Path) -> None:
    async with app.running(store=f"sqlite:///{tmp_path}/given.db"):
        assert await asyncio.to_thread(app.sync.execute, greet("mule"), timeout=SECONDS_MAX) == "hello mule"
        assert app.store.endswith("given.db")
        await asyncio.to_thread(leave, app)
    assert not machine.path.exists()


async def test_a_second_store_is_refused_on_whatever_event_loop(app: App, tmp_path: Path) -> None:
    await asyncio.to_thread(app.sync.submit, greet("mule"))
    with pytest.raises(InvalidInput, match=r"is open on .*store\.db; close it before opening .*other\.db"):
        async with app.running(store=f"sqlite:///{tmp_path}/other.db"):
            raise AssertionError("never reached")
    assert not (tmp_path / "other.db").exists()
    await asyncio.to_thread(leave, app)


async def test_a_store_in_memory_serves_one_event_loop(app: App) -> None:
    app = App("memory", agents=[echoes], workflows=[greet], store="memory://")
    async with app.running():
        with pytest.raises(InvalidInput, match="a store in memory serves only that one: name a file"):
            await asyncio.to_thread(app.sync.submit, greet("mule"))
        assert await within(app.execute(greet("mule"))) == "hello mule"


async def test_nothing_can_be_declared_while_a_thread_has_it_open(machine: Machine) -> None:
    app = machine.app([echoes], [greet])
    await asyncio.to_thread(app.sync.submit, greet("mule"))
    with pytest.raises(DefinitionError, match="while App machine is open"):
        app.service("late")
    await asyncio.to_thread(leave, app)
    app.service("late")


# --- death and forks
PROGRAM = """
import asyncio, os, sys
from arriero import Agent, App, workflow

echoes = Agent("echoes")

@echoes.step
async def echo(text: str) -> str:
    return text

@workflow
async def greet(name: str) -> str:
    return "hello " + await echo(name)

app = App("machine", agents=[echoes], workflows=[greet], store=sys.argv[1])

def submit_in_child(task_id):
    child = os.fork()
    if child == 0:
        try:
            app.sync.submit(greet(task_id), task_id=task_id)
        except BaseException as error:
            print(f"{type(error).__name__}: {error}", flush=True)
        os._exit(0)
    os.waitpid(child, 0)

async def main():
    async with app.running():
        await asyncio.to_thread(app.sync.submit, greet("thread"), task_id="thread")
        await asyncio.to_thread(submit_in_child, "child")
        print(await app.task("thread", greet).result(), flush=True)
        print(await asyncio.to_thread(app.sync.execute, greet("again")), flush=True)
    if sys.argv[2] == "killed":
        await asyncio.to_thread(app.sync.submit, greet("last"), task_id="last")
        os.kill(os.getpid(), 9)

asyncio.run(main())
"""


def test_a_fork_while_an_event_loop_has_it_open_and_a_death_after_it_lose_nothing(machine: Machine) -> None:
    command = [sys.executable, "-c", PROGRAM, machine.url, "killed"]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=3 * SECONDS_MAX, check=False)
    said = ran.stdout.splitlines()
    assert said[0].startswith("InvalidInput: App machine was open when this process was forked")
    assert said[1:] == ["hello thread", "hello again"], ran.stderr
    app = machine.app([echoes], [greet], settings=QUICK)
    with app.sync.running() as front:
        assert front.task("last", greet).result(SECONDS_MAX) == "hello last"
    assert {event["task"] for event in asyncio.run(machine.events("task.submitted"))} >= {"thread", "last"}
    asyncio.run(machine.check())
