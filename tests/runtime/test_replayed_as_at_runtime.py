"""``App.replay`` says what a process does: each change of the code is replayed, and then really runs on the same task."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from runtime_world import Machine, eventually

import arriero
from arriero import Agent, App, Attempt, Permanent, Signal, Workflow, workflow
from arriero.client.replaying import HeldOnReplay
from arriero.model import Loaded, StepKind, StepState, TaskState
from arriero.model.failures import read_task_failure

Code = Callable[..., Coroutine[Any, Any, Any]]
approved = Signal("approved", int)
till, elsewhere, other_till = Agent("till", breaker=None), Agent("elsewhere"), Agent("till", breaker=None)


@till.step(effect_free=True)
async def charge(attempt: Attempt, pence: int) -> str:
    return f"receipt-{pence}"


@till.step(effect_free=True)
async def ship(attempt: Attempt, receipt: str) -> None: ...


@elsewhere.step(effect_free=True)
async def unknown(attempt: Attempt) -> None: ...


@other_till.step(name="charge", effect_free=True)
async def charge_as_number(attempt: Attempt, pence: int) -> int:
    return pence


async def recorded(pence: int) -> None:
    """The code under which the task is recorded."""
    receipt = await charge(pence)
    await approved.wait()
    await arriero.sleep(3_600)
    await ship(receipt)


# --- changes that a task under way survives
async def reworded(pence: int, currency: str = "GBP") -> None:
    receipt = await charge(pence)
    answer = await approved.wait()
    await arriero.sleep(3_600 + answer)
    await ship(f"{receipt} {currency}")


async def beside(pence: int) -> None:
    early = asyncio.create_task(ship("early").options(key="early"))
    receipt = await charge(pence)
    await approved.wait()
    await arriero.sleep(3_600)
    await asyncio.gather(ship(receipt), early)


async def patched(pence: int) -> None:
    receipt = await charge(pence)
    if arriero.patched("gift"):
        await ship("a gift")
    await approved.wait()
    await arriero.sleep(3_600)
    await ship(receipt)


async def ends_early(pence: int) -> None:
    await charge(pence)
    await approved.wait()


async def refuses_after_it(pence: int) -> None:
    await charge(pence)
    await approved.wait()
    raise Permanent("not today")


# --- changes that hold it
async def step_before(pence: int) -> None:
    await ship("before")
    await recorded(pence)


async def other_arguments(pence: int) -> None:
    receipt = await charge(pence + 1)
    await approved.wait()
    await arriero.sleep(3_600)
    await ship(receipt)


async def with_key(pence: int) -> None:
    receipt = await charge(pence).options(key="main")
    await approved.wait()
    await ship(receipt)


async def without_wait(pence: int) -> None:
    await ship(await charge(pence))


async def without_anything(pence: int) -> None:
    return None


async def bug_before_it(pence: int) -> None:
    raise RuntimeError("a bug")


async def bug_behind_the_record(pence: int) -> None:
    await charge(pence)
    raise RuntimeError("a bug")


async def bug_after_the_signal(pence: int) -> None:
    await charge(pence)
    raise RuntimeError(f"a bug with {await approved.wait()}")


async def refuses_before_it(pence: int) -> None:
    raise Permanent("not today")


async def parameter_of_another_type(pence: list[str]) -> None:
    await recorded(len(pence))


async def result_of_another_type(pence: int) -> None:
    number = await charge_as_number(pence)
    await approved.wait()
    await ship(str(number))


async def forbidden(pence: int) -> None:
    receipt = await charge(pence)
    await approved.wait()
    await asyncio.sleep(1)
    await ship(receipt)


async def stuck(pence: int) -> None:
    await charge(pence)
    await approved.wait()
    await asyncio.Event().wait()


async def forgotten(pence: int) -> None:
    receipt = await charge(pence)
    await approved.wait()
    _ = ship(receipt)


async def unrecordable(pence: int) -> Any:
    await charge(pence)
    await approved.wait()
    return object()


class Odd:
    """A value that nothing can look at."""

    @property
    def __class__(self) -> Any:
        raise RuntimeError("no class is told")


async def bug_of_a_value(pence: int) -> Any:
    await charge(pence)
    await approved.wait()
    return Odd()


async def asks_another_agent(pence: int) -> None:
    await charge(pence)
    await approved.wait()
    await unknown()


SURVIVES = [recorded, reworded, beside, patched, ends_early, refuses_after_it]
HOLDS: dict[Code, str] = {
    step_before: "await ship('before')",
    other_arguments: "receipt = await charge(pence + 1)",
    with_key: "receipt = await charge(pence).options(key='***')",
    without_wait: "await ship(await charge(pence))",
    without_anything: "async def without_anything(pence: int) -> None:",
    bug_before_it: "raise RuntimeError('a bug')",
    bug_behind_the_record: "raise RuntimeError('a bug')",
    bug_after_the_signal: "raise RuntimeError(f'a bug with {await approved.wait()}')",
    refuses_before_it: "raise Permanent('not today')",
    parameter_of_another_type: "async def parameter_of_another_type(pence: list[str]) -> None:",
    result_of_another_type: "number = await charge_as_number(pence)",
    forbidden: "await asyncio.sleep(1)",
    stuck: "await asyncio.Event().wait()",
    forgotten: "async def forgotten(pence: int) -> None:",
    unrecordable: "async def unrecordable(pence: int) -> Any:",
    bug_of_a_value: "raise RuntimeError('no class is told')",
    asks_another_agent: "await unknown()",
}


def build_app(machine: Machine, code: Code) -> App:
    agent = other_till if code is result_of_another_type else till
    return machine.app([agent], [build_workflow(code)])


def build_workflow(code: Code) -> Workflow[..., Any]:
    return workflow(name="order", signals=[approved])(code)


async def record_task(machine: Machine) -> None:
    """A task that waits for a signal, which comes while no process runs."""
    old = build_app(machine, recorded)
    order = old.workflows[0]
    async with old.running():
        await old.submit(order(5), task_id="order-1")
        await eventually(lambda: find_wait(old))
    async with old:
        await old.task("order-1").send(approved(7))


async def find_wait(app: App) -> bool | None:
    loaded = await app.session.store.find("order-1")
    assert loaded is not None
    waits = [step for step in loaded.steps if step.kind is StepKind.TIMER and step.state is StepState.PENDING]
    return bool(waits) or None


async def run_until_settled(machine: Machine, code: Code) -> Loaded:
    """Let a process with that code take the task up, until it has decided what is recorded."""
    app = build_app(machine, code)

    async def look() -> Loaded | None:
        loaded = await app.session.store.find("order-1")
        assert loaded is not None
        takes = [step for step in loaded.steps if step.name.startswith("signal") and step.state is StepState.COMPLETED]
        is_over = loaded.task.state in (TaskState.HELD, TaskState.PROCESSED, TaskState.COMPENSATED)
        sleeps = bool(takes) and await find_wait(app)
        return loaded if is_over or sleeps else None

    async with app.running():
        return await eventually(look)


async def replay(machine: Machine, code: Code) -> tuple[HeldOnReplay, ...]:
    """Replay with that code; prove that nothing was written."""
    before = [event async for event in _dump(machine)]
    report = await build_app(machine, code).replay()
    assert (report.replayed, report.skipped) == (1, {})
    assert [event async for event in _dump(machine)] == before
    return report.held


async def _dump(machine: Machine) -> Any:
    for event in await machine.events():
        yield event


@pytest.mark.parametrize("code", SURVIVES, ids=lambda code: code.__name__)
async def test_a_change_that_replay_lets_pass_holds_no_task(machine: Machine, code: Code) -> None:
    await record_task(machine)
    assert await replay(machine, code) == ()
    settled = await run_until_settled(machine, code)
    assert settled.task.state is not TaskState.HELD, settled.task.failure


@pytest.mark.parametrize("code", HOLDS, ids=lambda code: code.__name__)
async def test_a_change_that_replay_reports_holds_the_task_for_the_same_reason(machine: Machine, code: Code) -> None:
    await record_task(machine)
    (held,) = await replay(machine, code)
    settled = await run_until_settled(machine, code)
    assert settled.task.state is TaskState.HELD
    assert settled.task.failure is not None
    failure = read_task_failure(settled.task.failure)
    assert (held.reason, held.code, held.kind) == (failure.reason, failure.code, failure.kind)
    assert held.at is not None
    assert held.at.source.replace('"', "'") == HOLDS[code].replace('"', "'"), held


@pytest.mark.parametrize("code", [recorded, other_arguments], ids=lambda code: code.__name__)
async def test_a_held_task_is_replayed_as_a_resubmission_would(machine: Machine, code: Code) -> None:
    await record_task(machine)
    await run_until_settled(machine, other_arguments)
    app = build_app(machine, code)
    report = await app.replay(state="held")
    assert [one.id for one in report.held] == ([] if code is recorded else ["order-1"])
    async with app:
        await app.task("order-1").resubmit(by="ana", reason="the code was mended")
    settled = await run_until_settled(machine, code)
    assert (settled.task.state is TaskState.HELD) == bool(report.held)
