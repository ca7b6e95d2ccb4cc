"""Each failed attempt is a line in the log, whoever found it, and a task that is held by its code another."""

import asyncio
import logging
from collections.abc import Iterator
from typing import Any

import pytest
from runtime_world import Machine, session_of, until, within

from arriero import Agent, App, Attempt, Permanent, Retry, Supervision, TaskFailed, Transient, Undo, testing, workflow
from arriero.runtime import failure_log
from arriero.system.rate_limited_log import LINES_MAX

bank = Agent("bank", retry_budget=None, breaker=None)


@bank.step(retry=Retry(tries=1), supervision=Supervision(attempts=3))
async def charge(attempt: Attempt, order: str = "1") -> str:
    raise Transient(f"order {order}: the bank refuses", code="refused")


@bank.step(complete_within=1, retry=Retry(tries=1), supervision=Supervision(attempts=2), effect_free=True)
async def silent(attempt: Attempt) -> None:
    await asyncio.Event().wait()


@bank.step(wait_within=5)
async def reserve(attempt: Attempt) -> None: ...


@reserve.compensation(supervision=Supervision(attempts=1))
async def free(undo: Undo[None]) -> None:
    raise Permanent("cannot be freed", code="kept")


@workflow
async def undone() -> None:
    await reserve()
    raise Permanent("not today")


@workflow
async def buggy() -> None:
    raise KeyError("nix")


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture) -> Iterator[list[str]]:
    """Messages of the logger ``arriero``, without those of alerts, as they come."""
    found: list[str] = []

    class Kept(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if record.name == "arriero" and record.levelno >= logging.WARNING:
                found.append(record.getMessage())

    handler = Kept()
    logging.getLogger("arriero").addHandler(handler)
    yield found
    logging.getLogger("arriero").removeHandler(handler)


async def failed(call: Any, *, wait: bool = True) -> None:
    async with testing.running(App("bank", agents=[bank], workflows=[undone, buggy])) as world:
        task = await world.app.submit(call, task_id="t")
        with pytest.raises(TaskFailed):
            await within(task.result())


async def test_each_attempt_is_told_with_when_the_next_comes_and_the_last_that_none_comes(lines: list[str]) -> None:
    await failed(charge())
    assert len(lines) == 3
    for number, line in enumerate(lines, start=1):
        start = f"step charge of task t: attempt {number} failed: transient: order 1: the bank refuses [refused] (raised at "
        assert line.startswith(start)
        assert 'in charge: `raise Transient(f"order {order}: the bank refuses", code="refused")`' in line
    assert "; again at 00:00:0" in lines[0]
    assert lines[0].endswith(" s)")
    assert lines[2].endswith("; no attempt left of 3")


async def test_an_attempt_that_expires_is_told_by_whoever_finds_it(lines: list[str]) -> None:
    await failed(silent())
    assert len(lines) == 2
    assert lines[0].startswith("step silent of task t: attempt 1 failed: expired: no answer within its time")
    assert lines[1].endswith("; no attempt left of 2")


async def test_a_compensation_that_fails_is_told(lines: list[str]) -> None:
    await failed(undone())
    (line,) = lines
    assert line.startswith("the undo of reserve of task t: attempt 1 failed: permanent: cannot be freed [kept]")
    assert line.endswith("; not tried again: the undo needs an operator")


async def test_a_task_that_is_held_by_a_bug_is_told_with_its_traceback(lines: list[str]) -> None:
    await failed(buggy())
    (line,) = lines
    assert line.startswith("task t of buggy is held: KeyError: 'nix'; the line to fix: ")
    assert line.splitlines()[-1].strip() == 'raise KeyError("nix")'


async def test_an_outage_with_many_tasks_is_a_few_lines_and_their_number(lines: list[str]) -> None:
    tasks = 200
    async with testing.running(App("bank", agents=[bank])) as world:
        handles = [await world.app.submit(charge(str(number)), task_id=str(number)) for number in range(tasks)]
        for handle in handles:
            with pytest.raises(TaskFailed):
                await within(handle.result())
    told = [line for line in lines if "more like it" not in line]
    more = sum(int(line.split("; and ")[1].split(" more")[0]) for line in lines if "more like it" in line)
    assert len(lines) <= 2 * LINES_MAX + 4
    assert more + len(lines) == 3 * tasks
    assert told


async def test_a_lost_process_s_attempts_are_told_by_whoever_frees_them(machine: Machine, lines: list[str]) -> None:
    began, gate = asyncio.Event(), asyncio.Event()
    agent = Agent("mules")

    @agent.step
    async def carry(attempt: Attempt) -> None:
        began.set()
        await gate.wait()

    lost, other = machine.app([agent], []), machine.app([agent], [])
    async with lost.running(roles=["scheduler", "agents"]):
        task = await lost.submit(carry(), task_id="t")
        await within(began.wait())
        session = session_of(lost)
        await session._store.retire(session.context.process_no, by="test", known_dead=True)
        async with other.running():
            await until(lambda: any("was lost with process 1 and may have happened" in line for line in lines))
            gate.set()
            await within(other.task(task.id, carry).result())
    (line,) = [line for line in lines if "was lost with" in line]
    assert line.startswith("step carry of task t: attempt 1 was lost with process 1")
    assert line.endswith("; retried immediately")


async def test_a_line_that_cannot_be_made_costs_no_task(monkeypatch: pytest.MonkeyPatch, lines: list[str]) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("no line")

    monkeypatch.setattr(failure_log, "describe_failed_attempt", broken)
    await failed(charge())
    assert set(lines) == {"the failure of task t could not be logged"}
