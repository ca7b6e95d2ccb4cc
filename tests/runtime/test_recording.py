"""What cannot be recorded, texts that are badly spelled, and records that the code no longer fits."""

import asyncio
import math
from dataclasses import dataclass
from typing import Any

import pytest
from runtime_world import Machine, within

import arriero
from arriero import (
    Agent,
    App,
    Attempt,
    Permanent,
    Retry,
    StepFailed,
    Supervision,
    TaskCompensated,
    TaskFailed,
    Undo,
    testing,
    workflow,
)


@dataclass
class Reading:
    value: Any


def nested(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


UNRECORDABLE: dict[str, Any] = {
    "one level too deep": nested(101),
    "deeper than the interpreter goes": nested(5000),
    "over a megabyte": "x" * 1_100_000,
    "NaN": math.nan,
    "infinity deep inside": Reading([{"a": math.inf}]),
    "NUL": "a\0b",
    "a lone surrogate": "a\ud800b",
    "no JSON form": Reading(object()),
}
instruments = Agent("instruments")
undone: list[tuple[str, Any]] = []


@instruments.step(retry=Retry(tries=3), supervision=Supervision(attempts=3))
async def read(attempt: Attempt, what: str) -> Any:
    return UNRECORDABLE[what]


@read.compensation
async def unread(undo: Undo[Any], what: str) -> None:
    undone.append((undo.outcome, undo.result))


@workflow
async def survey(what: str) -> Any:
    return await read(what)


@workflow
async def look_at(what: str) -> str:
    try:
        await read(what)
    except StepFailed as failed:
        return f"{failed.code} after {failed.attempts}"
    return "read"


@pytest.mark.parametrize("what", UNRECORDABLE)
async def test_a_result_that_cannot_be_recorded_fails_the_step_in_doubt_and_is_not_asked_for_again(what: str) -> None:
    """It happened: so it is undone as an outcome nobody knows."""
    undone.clear()
    app = App("survey", agents=[instruments], workflows=[survey, look_at])
    async with testing.running(app) as world:
        task = await world.app.submit(survey(what))
        with pytest.raises(TaskCompensated, match="result of step read") as failed:
            await within(task.result())
        assert (failed.value.code, failed.value.step) == ("unrecordable_result", "read")
        assert undone == [("unknown", None)]
        assert len(world.calls(read)) == 1
        assert await within((await world.app.submit(look_at(what))).result()) == "unrecordable_result after 1"


async def test_results_and_outputs_at_the_limit_of_nesting_are_recorded_and_read_back() -> None:
    agent = Agent("miners")

    @agent.step
    async def dig(attempt: Attempt, levels: int) -> Any:
        return nested(levels)

    @workflow
    async def mine(levels: int) -> Any:
        arriero.keep_convoy_state(nested(levels))
        return await dig(levels)

    async with testing.running(App("mine", agents=[agent], workflows=[mine])) as world:
        task = await world.app.submit(mine(100), convoy="shaft")
        assert await within(task.result()) == nested(100)
        with pytest.raises(TaskFailed, match="the convoy's state is nested more than 100 levels deep"):
            await within((await world.app.submit(mine(101), convoy="other shaft")).result())


@pytest.mark.parametrize("what", UNRECORDABLE)
async def test_an_output_that_cannot_be_recorded_holds_the_task(what: str) -> None:
    @workflow
    async def give(what: str) -> Any:
        return UNRECORDABLE[what]

    async with testing.running(App("give", workflows=[give])) as world:
        with pytest.raises(TaskFailed, match="output cannot be recorded") as failed:
            await within((await world.app.submit(give(what))).result())
        assert (failed.value.state, failed.value.code) == ("held", "unrecordable_output")


@pytest.mark.parametrize(
    ("error", "shown"),
    [
        (ValueError("a\0b"), r"ValueError: a\x00b"),
        (ValueError("a\ud800b"), r"ValueError: a\ud800b"),
        (Permanent("a\0b\ud800", code="c\0d", details={"e\0": object()}), r"a\x00b\ud800"),
        (ValueError("x" * 10_000), "[cut, "),
        (ValueError(), "ValueError"),
    ],
)
async def test_an_error_is_recorded_however_its_text_is_spelled(machine: Machine, error: Exception, shown: str) -> None:
    agent = Agent("bad speller")

    @agent.step(retry=Retry(tries=1), supervision=Supervision(attempts=1), effect_free=True)
    async def speak(attempt: Attempt) -> None:
        raise error

    app = machine.app([agent])
    async with app.running():
        task = await app.submit(speak())
        with pytest.raises(TaskCompensated) as failed:
            await within(task.result())
        assert shown in failed.value.reason
        assert shown in (await task.view()).reason
    await machine.check()


async def test_an_error_whose_text_cannot_be_made_is_recorded_too(machine: Machine) -> None:
    class Silent(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no words")

    agent = Agent("silent")

    @agent.step(retry=Retry(tries=1), supervision=Supervision(attempts=1), effect_free=True)
    async def speak(attempt: Attempt) -> None:
        raise Silent

    app = machine.app([agent])
    async with app.running():
        with pytest.raises(TaskCompensated, match="Silent: .its text cannot be made"):
            await asyncio.wait_for((await app.submit(speak())).result(), 60)
    await machine.check()


# --- code that changed under a running task
async def opened_by(machine: Machine, *args: Any) -> str:
    """A task whose first step was opened by the old code and waits for an Agent."""
    agent = Agent("mules")

    @agent.step
    async def load(attempt: Attempt, what: str, pounds: int = 1) -> str:
        return what

    @workflow
    async def carry(what: str) -> str:
        return await load(what, *args)

    old = machine.app([agent], [carry])
    async with old.running(agents=[]):
        task = await old.submit(carry("salt"))
        await machine.event("step.opened", task=task.id)
    return task.id


async def test_arguments_that_the_new_code_refuses_fail_the_step_without_a_call(machine: Machine) -> None:
    name = await opened_by(machine)
    agent, called = Agent("mules"), []

    @agent.step
    async def load(attempt: Attempt, what: int) -> str:
        called.append(what)
        return str(what)

    @workflow
    async def carry(what: str) -> str:
        return await load(7)

    async with machine.app([agent], [carry]).running(roles=["agents"]):
        await machine.event("step.failed", task=name)
    (failed,) = await machine.events("step.failed")
    assert (failed["failure"]["code"], failed["in_doubt"], called) == ("refused_arguments", False, [])
    assert "load" in failed["failure"]["message"]
    await machine.check(complete=False)


async def test_arguments_of_the_workflow_that_the_new_code_refuses_hold_the_task(machine: Machine) -> None:
    name = await opened_by(machine)
    agent = Agent("mules")

    @workflow
    async def carry(what: int) -> str:
        return str(what)

    app = machine.app([agent], [carry])
    async with app.running():
        with pytest.raises(TaskFailed, match="carry") as failed:
            await within(app.task(name).result())
        assert (failed.value.state, failed.value.code) == ("held", "refused_arguments")
    await machine.check()


async def test_code_that_asks_with_other_arguments_holds_the_task_and_names_both_sides(machine: Machine) -> None:
    name = await opened_by(machine)
    agent = Agent("mules")

    @agent.step
    async def load(attempt: Attempt, what: str, pounds: int = 1) -> str:
        raise AssertionError("never called")

    @workflow
    async def carry(what: str) -> str:
        return await load(what, 2)

    app = machine.app([agent], [carry])
    async with app.running(agents=[]):
        with pytest.raises(TaskFailed) as failed:
            await within(app.task(name).result())
    assert (failed.value.state, failed.value.code) == ("held", "replay")
    for part in (
        "step load was recorded with the arguments",
        '{"what":"salt"}',
        '{"pounds":2,"what":"salt"}',
        "another name or key",
    ):
        assert part in failed.value.reason
    await machine.check()


async def test_code_that_no_longer_asks_for_a_recorded_step_holds_the_task_and_names_it(machine: Machine) -> None:
    name = await opened_by(machine)
    agent = Agent("mules")

    @agent.step
    async def load(attempt: Attempt, what: str) -> str:
        return what

    @workflow
    async def carry(what: str) -> str:
        await arriero.sleep(60)
        return await load(what)

    app = machine.app([agent], [carry])
    async with app.running(agents=[]):
        with pytest.raises(TaskFailed, match="no longer asks for the recorded step load") as failed:
            await within(app.task(name).result())
    assert (failed.value.state, failed.value.code) == ("held", "replay")
    await machine.check()


async def test_code_that_asks_for_more_at_its_end_goes_on(machine: Machine) -> None:
    name = await opened_by(machine)
    agent = Agent("mules")

    @agent.step
    async def load(attempt: Attempt, what: str, pounds: int = 1) -> str:
        return what

    @workflow
    async def carry(what: str) -> str:
        return await load(what) + await load("wool")

    app = machine.app([agent], [carry])
    async with app.running():
        assert await within(app.task(name).result()) == "saltwool"
    await machine.check()
