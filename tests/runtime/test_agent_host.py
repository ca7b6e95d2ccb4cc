"""Attempts at once: how many, in threads or on the loop, and when a place is free again."""

import asyncio
import threading
from collections import Counter
from typing import Any

import pytest
from runtime_world import SECONDS_MAX, Machine, session_of, until, within

from arriero import Agent, Attempt, Permanent, Retry, StepFailed, Supervision, Undo, workflow
from arriero.runtime.agent_host import AgentHost

other = Agent("other")


@other.step
async def turn(attempt: Attempt) -> None: ...


async def several_turns(app: object) -> None:
    """Long enough for every loop of the runtime to pass: tasks of another Agent run from end to end."""
    for _ in range(3):
        await within((await app.submit(turn())).result())  # type: ignore[attr-defined]  # an App


async def test_plain_functions_run_in_threads_beside_the_loop(machine: Machine) -> None:
    agent = Agent("threads", max_in_flight=3)
    meet = threading.Barrier(3)  # nobody gets past it alone
    names = set()

    @agent.step
    def gather(attempt: Attempt, number: int) -> int:
        meet.wait(SECONDS_MAX)
        names.add(threading.current_thread().name)
        return number

    app = machine.app([agent])
    async with app.running():
        tasks = [await app.submit(gather(number)) for number in range(3)]
        assert await within(asyncio.gather(*(task.result() for task in tasks))) == [0, 1, 2]
    assert len(names) == 3
    assert all(name.startswith("arriero-threads") for name in names)


async def test_a_plain_compensation_runs_in_a_thread_too(machine: Machine) -> None:
    agent = Agent("threads")
    where: list[str] = []

    @agent.step
    async def act(attempt: Attempt) -> str:
        where.append(threading.current_thread().name)
        return "done"

    @act.compensation
    def undo(undo: Undo[str]) -> None:
        where.append(f"{threading.current_thread().name} {undo.result}")

    @workflow
    async def doomed() -> None:
        await act()
        raise Permanent("no")

    app = machine.app([agent], [doomed])
    async with app.running():
        task = await app.submit(doomed())
        await within(asyncio.gather(task.result(), return_exceptions=True))
    assert where[0] == "MainThread"
    assert where[1].startswith("arriero-threads") and where[1].endswith("done")


async def test_a_plain_function_that_outlives_its_deadline_keeps_its_place(machine: Machine) -> None:
    agent = Agent("narrow", max_in_flight=1)
    release, began = threading.Event(), threading.Semaphore(0)
    inside: list[int] = []
    most = 0

    @agent.step(
        complete_within=0.15, supervision=Supervision(attempts=9, complete_within_factor=10), retry=Retry(tries=1)
    )
    def jam(attempt: Attempt) -> int:
        nonlocal most
        inside.append(attempt.number)
        most = max(most, len(inside))
        began.release()
        release.wait(SECONDS_MAX)
        inside.remove(attempt.number)
        return attempt.number

    @agent.step
    def quick(attempt: Attempt) -> str:
        nonlocal most
        most = max(most, len(inside) + 1)
        return "quick"

    app = machine.app([agent, other])
    async with app.running():
        slow = await app.submit(jam())
        await machine.event("step.expired", task=slow.id)
        waits = await app.submit(quick())
        await several_turns(app)
        assert inside == [1]  # neither its own next attempt nor the other step has a place
        assert len([e for e in await machine.events("step.dispatched") if e["task"] in (slow.id, waits.id)]) == 1
        release.set()
        assert await within(waits.result()) == "quick"
        assert await within(slow.result()) >= 2
    assert most == 1
    await machine.check()


async def test_reserved_places_are_used_by_urgent_tasks_alone_and_these_may_use_all_places(machine: Machine) -> None:
    agent = Agent("clinic", max_in_flight=4, reserve=2)
    ends = {priority: asyncio.Event() for priority in (5, 9)}
    inside: Counter[int] = Counter()

    @agent.step
    async def treat(attempt: Attempt, priority: int) -> None:
        inside[priority] += 1
        await ends[priority].wait()
        inside[priority] -= 1

    app = machine.app([agent, other])
    async with app.running():
        tasks = [await app.submit(treat(5), priority=5) for _ in range(5)]
        await until(lambda: inside[5] == 2)
        await several_turns(app)
        assert inside == {5: 2}
        tasks += [await app.submit(treat(9), priority=9) for _ in range(4)]
        await until(lambda: inside[9] == 2)
        await several_turns(app)
        assert inside == {5: 2, 9: 2}
        ends[9].set()
        await until(lambda: not inside[9])
        await several_turns(app)
        assert inside[5] == 2
        ends[5].set()
        await within(asyncio.gather(*(task.result() for task in tasks)))
    await machine.check()


async def test_others_use_all_places_that_are_not_reserved_while_urgent_ones_use_those_that_are(
    machine: Machine,
) -> None:
    agent = Agent("clinic", max_in_flight=3, reserve=1)
    end = asyncio.Event()
    inside: Counter[int] = Counter()

    @agent.step
    async def treat(attempt: Attempt, priority: int) -> None:
        inside[priority] += 1
        await end.wait()

    app = machine.app([agent, other])
    async with app.running():
        tasks = [await app.submit(treat(8), priority=8)]
        await until(lambda: inside[8] == 1)
        tasks += [await app.submit(treat(0), priority=0) for _ in range(4)]
        await until(lambda: inside[0] == 2)
        await several_turns(app)
        assert inside == {8: 1, 0: 2}
        end.set()
        await within(asyncio.gather(*(task.result() for task in tasks)))
    await machine.check()


async def test_max_in_flight_is_never_passed_and_always_used(machine: Machine) -> None:
    agent = Agent("wide", max_in_flight=4)
    go = asyncio.Event()
    inside = most = 0

    @agent.step
    async def work(attempt: Attempt) -> None:
        nonlocal inside, most
        inside += 1
        most = max(most, inside)
        await go.wait()
        inside -= 1

    @workflow
    async def many() -> None:
        await asyncio.gather(*(work() for _ in range(6)))

    app = machine.app([agent, other], [many])
    async with app.running():
        tasks = [await app.submit(many()) for _ in range(5)]
        await until(lambda: inside == 4)
        await several_turns(app)
        assert inside == 4
        go.set()
        await within(asyncio.gather(*(task.result() for task in tasks)))
    assert most == 4
    await machine.check()


async def test_each_agent_has_places_of_its_own(machine: Machine) -> None:
    agent = Agent("full", max_in_flight=1)
    go = asyncio.Event()

    @agent.step
    async def work(attempt: Attempt) -> None:
        await go.wait()

    app = machine.app([agent, other])
    async with app.running():
        tasks = [await app.submit(work()) for _ in range(3)]
        await machine.event("step.dispatched")
        await several_turns(app)
        go.set()
        await within(asyncio.gather(*(task.result() for task in tasks)))


async def test_waiting_for_a_place_spends_neither_attempt_nor_time(machine: Machine) -> None:
    agent = Agent("narrow", max_in_flight=1)
    go = asyncio.Event()
    remaining: list[float] = []

    @agent.step(complete_within=5)
    async def first(attempt: Attempt) -> None:
        await go.wait()

    @agent.step(complete_within=1)
    async def second(attempt: Attempt) -> None:
        remaining.append(attempt.remaining)

    app = machine.app([agent, other])
    async with app.running():
        await app.submit(first())
        await machine.event("step.dispatched")
        waits = await app.submit(second())
        await several_turns(app)
        go.set()
        await within(waits.result())
        assert (await waits.view()).failure_count == 0
    assert 0.5 < remaining[0] <= 1


async def test_a_request_that_waits_too_long_for_a_place_fails_without_a_doubt(machine: Machine) -> None:
    agent = Agent("narrow", max_in_flight=1)
    go = asyncio.Event()

    @agent.step
    async def first(attempt: Attempt) -> None:
        await go.wait()

    @agent.step(wait_within=0.05)
    async def second(attempt: Attempt) -> None: ...

    @workflow
    async def impatient() -> str:
        try:
            await second()
        except StepFailed as failed:
            return f"{failed.cause} {failed.code}"
        return "taken"

    app = machine.app([agent], [impatient])
    async with app.running():
        await app.submit(first())
        await machine.event("step.dispatched")
        assert await within((await app.submit(impatient())).result()) == "expired not_taken"
        go.set()
    await machine.check()


class Odd(BaseException):
    """What no `except Exception` catches, as some libraries raise it."""


async def test_a_step_that_leaves_by_no_plain_exception_frees_its_place_and_keeps_nobody_from_leaving(
    machine: Machine,
) -> None:
    agent = Agent("odd", max_in_flight=1)
    calls = []

    @agent.step
    async def act(attempt: Attempt) -> str:
        calls.append(attempt.number)
        if len(calls) == 1:
            raise Odd
        return "done"

    app = machine.app([agent])
    async with app.running():
        await app.submit(act())
        await until(lambda: len(calls) == 1)
        await until(lambda: not session_of(app).agents.in_flight)
        assert await within((await app.submit(act())).result()) == "done"


async def test_an_attempt_that_is_cancelled_before_its_first_line_frees_its_place(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = Agent("late", max_in_flight=1)
    cancelled = []
    begin = AgentHost.dispatch

    def cancelling(host: AgentHost, dispatch: Any, **options: Any) -> None:
        begin(host, dispatch, **options)
        if not cancelled:
            cancelled.extend(host.in_flight.values())
            cancelled[0].cancel()

    @agent.step
    async def act(attempt: Attempt) -> str:
        return "done"

    monkeypatch.setattr(AgentHost, "dispatch", cancelling)
    app = machine.app([agent])
    async with app.running():
        await app.submit(act())
        await until(lambda: bool(cancelled) and cancelled[0].done())
        await until(lambda: not session_of(app).agents.in_flight)
        assert await within((await app.submit(act())).result()) == "done"
