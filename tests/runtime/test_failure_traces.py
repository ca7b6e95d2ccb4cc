"""Where user's code failed is kept with the task and with each failed attempt, in their rows and in the history."""

import asyncio
from typing import Any

import msgspec
import pytest
from runtime_world import Machine, within

from arriero import Agent, App, Attempt, Permanent, Retry, Supervision, TaskFailed, Transient, Undo, testing, workflow
from arriero.model import StepRow, TaskRow
from arriero.model.failures import StepFailure, TaskFailure
from arriero.store.sqlite.store import SqliteStore
from arriero.text.format import find_frame_to_fix, format_labelled_location

shop = Agent("shop")
ONCE = Supervision(attempts=1)


def price_of(name: str) -> int:
    return {"salt": 1}[name]


@shop.step(retry=Retry(tries=1), supervision=Supervision(attempts=2), effect_free=True)
async def charge(attempt: Attempt, how: str) -> int:
    if how == "transient":
        raise Transient("busy", code="busy")
    if how == "permanent":
        raise Permanent("declined", code="declined")
    return price_of(how)


@shop.step(retry=Retry(tries=1), supervision=ONCE, effect_free=True)
def run_in_thread(attempt: Attempt) -> int:
    return price_of("in a thread")


@shop.step
async def reserve(attempt: Attempt) -> None:
    return None


@reserve.compensation(retry=Retry(tries=1), supervision=ONCE)
async def free(undo: Undo[None]) -> None:
    price_of("undone")


@workflow
async def fulfil(name: str) -> int:
    await reserve()
    return price_of(name)


@workflow
async def paid(how: str) -> int:
    return await charge(how)


@workflow
async def threaded() -> int:
    return await run_in_thread()


@workflow
async def undone() -> None:
    await reserve()
    raise Permanent("not today", code="refused")


@workflow
async def forbidden() -> None:
    await asyncio.sleep(1)


WORKFLOWS = [fulfil, paid, threaded, undone, forbidden]


async def ended(call: Any) -> tuple[TaskRow, TaskFailure, list[StepRow], list[dict[str, Any]]]:
    """How the task of a call ended: its row, its failure, its steps, the events of its history."""
    async with testing.running(App("shop", agents=[shop], workflows=WORKFLOWS)) as world:
        task = await world.app.submit(call)
        with pytest.raises(TaskFailed):
            await within(task.result())
        store = world._store
        (row,) = store.tasks.values()
        assert row.failure is not None
        failure = msgspec.json.decode(row.failure, type=TaskFailure)
        events = [event async for one in store.history() for event in msgspec.json.decode(one.events)]
        return row, failure, list(store.steps_of(row.task_no)), events


async def test_a_bug_of_a_workflow_keeps_its_line_in_the_task_and_in_the_history() -> None:
    _, failure, _, events = await ended(fulfil("nix"))
    frame = find_frame_to_fix(failure.trace)
    assert frame is not None
    assert (frame.function, frame.source) == ("price_of", 'return {"salt": 1}[name]')
    assert [one.function for one in failure.trace[0].frames] == ["fulfil", "price_of"]
    (terminal,) = [event for event in events if event["type"] == "task.terminal"]
    assert msgspec.convert(terminal["failure"], TaskFailure) == failure


async def test_python_is_told_the_line_too_by_the_exception_and_by_the_view() -> None:
    async with testing.running(App("shop", agents=[shop], workflows=WORKFLOWS)) as world:
        bug, declined = await world.app.submit(fulfil("nix")), await world.app.submit(paid("permanent"))
        with pytest.raises(TaskFailed) as failed:
            await within(bug.result())
        with pytest.raises(TaskFailed):
            await within(declined.result())
        views = [await bug.view(), await declined.view()]
    assert failed.value.at.endswith('in price_of: `return {"salt": 1}[name]`')
    assert failed.value.__notes__ == [f"in the task: {failed.value.at}"]
    assert views[0].failure is not None
    assert (views[0].failure.at, views[0].failure.trace[0].error) == (failed.value.at, "KeyError")
    (step,) = views[1].steps
    assert step.failure is not None
    assert step.failure.at.endswith('in charge: `raise Permanent("declined", code="declined")`')


async def test_each_failed_attempt_keeps_its_line_and_the_task_that_failed_by_it_too() -> None:
    _, failure, (step,), events = await ended(paid("nix"))
    assert step.failure is not None
    trace = msgspec.json.decode(step.failure, type=StepFailure).trace
    assert [frame.function for frame in trace[0].frames] == ["charge", "price_of"]
    assert failure.trace == trace
    attempts = [event for event in events if event["type"] in ("recover.applied", "step.failed")]
    assert [msgspec.convert(event["failure"], StepFailure).trace for event in attempts] == [trace, trace]


@pytest.mark.parametrize(("how", "source"), [("transient", "Transient"), ("permanent", "Permanent")])
async def test_what_a_step_raises_on_purpose_keeps_its_line(how: str, source: str) -> None:
    _, failure, _, _ = await ended(paid(how))
    assert "raised at" in format_labelled_location(failure.trace)
    assert f"in charge: `raise {source}(" in format_labelled_location(failure.trace)


async def test_a_plain_function_that_runs_in_a_thread_keeps_its_line(machine: Machine) -> None:
    app = machine.app([shop], WORKFLOWS)
    async with app.running():
        task = await app.submit(threaded(), task_id="t")
        with pytest.raises(TaskFailed):
            await within(task.result())
    store = SqliteStore(str(machine.path))
    await store.open()
    found = await store.find("t")
    await store.close()
    assert found is not None
    assert found.task.failure is not None
    trace = msgspec.json.decode(found.task.failure, type=TaskFailure).trace
    assert [frame.function for frame in trace[0].frames] == ["run_in_thread", "price_of"]
    await machine.check()


async def test_a_compensation_that_fails_keeps_its_line_and_the_refusal_that_began_the_undo_its_own() -> None:
    _, failure, _, events = await ended(undone())
    assert failure.kind == "undo"
    assert [frame.function for frame in failure.trace[0].frames] == ["free", "price_of"]
    assert failure.began_by is not None
    assert "in undone: `raise Permanent(" in format_labelled_location(failure.began_by.trace)
    (failed,) = [event for event in events if event["type"] == "compensation.failed"]
    assert msgspec.convert(failed["failure"], StepFailure).trace == failure.trace


async def test_what_workflow_code_must_not_call_is_named_with_its_line() -> None:
    _, failure, _, _ = await ended(forbidden())
    assert failure.code == "forbidden"
    assert "in forbidden: `await asyncio.sleep(1)`" in format_labelled_location(failure.trace)


class Unsayable(Exception):
    def __init__(self) -> None:
        pass

    def __str__(self) -> str:
        raise RuntimeError("no text")


def hostile(how: str) -> None:
    def down() -> None:
        down()

    if how == "group":
        raise ExceptionGroup("both", [KeyError("one"), ValueError("two")])
    if how == "recursion":
        down()
    if how == "unsayable":
        raise Unsayable
    if how == "syntax":
        raise SyntaxError("odd", ("no such file", "no number", None, 7))  # type: ignore[arg-type]  # what is tried
    raise SystemExit(3)


@pytest.mark.parametrize("how", ["group", "recursion", "unsayable", "syntax", "exit"])
@pytest.mark.parametrize("where", ["workflow", "step"])
async def test_whatever_is_raised_its_line_is_kept(how: str, where: str) -> None:
    agent = Agent("odd")

    @agent.step(retry=Retry(tries=1), supervision=ONCE, effect_free=True)
    async def odd_step(attempt: Attempt) -> None:
        hostile(how)

    @workflow
    async def odd() -> None:
        if where == "step":
            await odd_step()
        hostile(how)

    async with testing.running(App("odd", agents=[agent], workflows=[odd])) as world:
        task = await world.app.submit(odd())
        with pytest.raises(TaskFailed):
            await within(task.result())
        (row,) = world._store.tasks.values()
    assert row.failure is not None
    assert len(row.failure) < 12_000
    frame = find_frame_to_fix(msgspec.json.decode(row.failure, type=TaskFailure).trace)
    assert frame is not None
    assert frame.function in ("hostile", "hostile.<locals>.down", "down")


async def test_attempts_that_succeed_are_never_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    def look(*_: object) -> None:
        raise AssertionError("nothing has failed")

    for module in (
        "arriero.runtime.attempt_outcome",
        "arriero.core.replay",
        "arriero.core.task_run",
        "arriero.core.code_end",
    ):
        monkeypatch.setattr(f"{module}.capture_traceback", look)
    async with testing.running(App("shop", agents=[shop], workflows=WORKFLOWS)) as world:
        assert await within((await world.app.submit(fulfil("salt"))).result()) == 1
