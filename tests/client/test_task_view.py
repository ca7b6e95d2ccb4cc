"""What a view of a task tells: its steps with typed results, its times, who holds it; and that no row makes it fail."""

from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from arriero import (
    Agent,
    App,
    Attempt,
    FailureView,
    Permanent,
    StepView,
    Supervision,
    TaskFailed,
    TaskView,
    Undo,
    UnknownTask,
    sleep,
    workflow,
)
from arriero.model import TaskState
from arriero.testing import running
from arriero.testing.world import World

WHO: dict[str, Any] = {"by": "ana", "reason": "a test"}


@dataclass(frozen=True)
class Receipt:
    number: str


payments, stock = Agent("payments"), Agent("stock")
refused: list[Permanent] = []


@payments.step
async def charge(attempt: Attempt, order: str) -> Receipt:
    return Receipt(f"r-{order}")


@charge.compensation
async def refund(undo: Undo[Receipt], order: str) -> None: ...


@stock.step
async def reserve(attempt: Attempt, order: str) -> int:
    if refused:
        raise refused.pop()
    return 3


@workflow(supervision=Supervision(then="hold"))
async def fulfil(order: str) -> Receipt:
    receipt = await charge(order)
    await reserve(order)
    return receipt


@workflow
async def slow(order: str) -> Receipt:
    receipt = await charge(order)
    await sleep(3600)
    return receipt


@pytest.fixture
async def world() -> AsyncIterator[World]:
    refused.clear()
    async with running(App("shop", agents=[payments, stock], workflows=[fulfil, slow])) as world:
        yield world


def steps(view: TaskView[Any]) -> dict[str, StepView]:
    return {f"{'undo ' * (step.kind == 'compensation')}{step.label}": step for step in view.steps}


async def test_a_view_has_the_steps_with_their_results_as_their_types_and_the_output(world: World) -> None:
    task = await world.app.submit(fulfil("1"), task_id="t")
    await task.result()
    view = await task.view()
    assert (view.state, view.output, view.failure, view.unreadable) == ("processed", Receipt("r-1"), None, ())
    first, second = view.steps
    assert (first.label, first.agent, first.kind, first.state) == ("charge", "payments", "step", "completed")
    assert (first.result, second.result) == (Receipt("r-1"), 3)
    assert (first.ordinal, first.attempt, first.taken, first.in_doubt) == (1, 1, True, False)
    assert first.idempotency_key != second.idempotency_key
    times = [view.submitted_at, view.started_at, first.opened_at, first.started_at, first.finished_at, view.ended_at]
    assert times == sorted(time for time in times if time is not None)
    assert view.took_seconds is not None
    assert first.took_seconds is not None
    assert await task.view() == view


async def test_without_the_code_results_are_plain_values(world: World) -> None:
    await (await world.app.submit(fulfil("1"), task_id="t")).result()
    client = App("client")
    await client.session.open(world.app.session.store)
    view = await client.task("t").view()
    assert view.output == {"number": "r-1"}
    assert [step.result for step in view.steps] == [{"number": "r-1"}, 3]
    assert await client.task("t", fulfil).view() != view  # the handle knows the workflow's type
    await client.session.close()


async def test_a_view_tells_why_it_failed_what_is_held_and_what_undoes_what(world: World) -> None:
    refused.append(Permanent("out of stock", code="none", details={"left": 0}))
    task = await world.app.submit(fulfil("1"), task_id="t")
    with suppress(TaskFailed):
        await task.result()
    view = await task.view()
    assert (view.state, view.output) == ("held", None)
    assert view.failure is not None
    at, trace = view.failure.at, view.failure.trace
    assert at.endswith("in reserve: `raise refused.pop()`")
    assert view.failure == FailureView("step", "out of stock", "none", "reserve", None, at, trace)
    assert view.last_failure == view.failure
    assert view.steps[1].failure == FailureView("permanent", "out of stock", "none", "reserve", {"left": 0}, at, trace)
    await task.compensate(**WHO)
    with suppress(TaskFailed):
        await task.result()
    view = await task.view()
    undo, forward = steps(view)["undo charge"], steps(view)["charge"]
    assert (undo.undoes, forward.undone_by, undo.undone_by) == (forward.ordinal, undo.ordinal, None)
    assert (view.state, view.incarnation, undo.result) == ("compensated", 2, None)


async def test_the_time_a_task_waited_for_a_person_is_no_part_of_what_it_took(world: World) -> None:
    refused.append(Permanent("out of stock"))
    task = await world.app.submit(fulfil("1"), task_id="t")
    with suppress(TaskFailed):
        await task.result()
    held = await task.view()
    await world.clock.advance(7200)
    assert await task.view() == held
    await task.resubmit(**WHO)
    await task.result()
    view = await task.view()
    assert 7200 <= view.waited_seconds < 7260
    assert view.took_seconds is not None
    assert view.took_seconds < 60
    again = steps(view)["reserve"]
    assert again.took_seconds is not None
    assert (again.took_seconds < 60, again.waited_seconds >= 7200) == (True, True)
    assert steps(view)["charge"].waited_seconds == 0


async def test_a_view_tells_what_is_open_and_until_when(world: World) -> None:
    task = await world.app.submit(slow("1"), task_id="t")
    await world.clock.advance(10)
    view = await task.view()
    timer = steps(view)["sleep"]
    assert (timer.kind, timer.state, timer.took_seconds, timer.result) == ("timer", "pending", None, None)
    assert timer.not_before is not None
    assert timedelta(minutes=59) < timer.not_before - view.submitted_at < timedelta(minutes=61)
    assert (view.held_by, view.not_before) == (None, timer.not_before)  # it was put down
    await task.pause(**WHO)
    paused = await task.view()
    assert (paused.paused, paused.paused_at is not None) == (True, True)


async def test_a_view_names_the_process_that_holds_the_task_and_runs_its_step(world: World) -> None:
    shelf = Agent("shelf")

    @shelf.step(name="asks")
    async def asks(attempt: Attempt) -> None:
        seen.append(await world_of_its_own.app.task("t").view())

    @workflow
    async def asking() -> None:
        await asks()

    seen: list[TaskView] = []
    async with running(App("shop", agents=[shelf], workflows=[asking])) as world_of_its_own:
        await (await world_of_its_own.app.submit(asking(), task_id="t")).result()
        assert world_of_its_own.app.session.node is not None
        instance = world_of_its_own.app.session.node.session.context.actor
    (view,) = seen
    (step,) = view.steps
    assert (view.state, view.held_by, step.held_by, step.state) == ("processing", instance, instance, "running")
    assert step.started_at is not None
    assert step.complete_by is not None


async def test_tasks_that_are_looked_through_are_seen_as_by_their_own_handles(world: World) -> None:
    for name in ("a", "b"):
        await (await world.app.submit(fulfil(name), task_id=name)).result()
    assert [view async for view in world.app.tasks()] == [await world.app.task(name).view() for name in ("a", "b")]


@pytest.mark.parametrize(
    ("table", "column", "value", "part"),
    [
        ("task", "failure", "{", "column failure of table task"),
        ("task", "output", "{", "column output of table task"),
        ("task", "policy", "{", "column policy of table task"),
        ("task", "ended_at", 10**18, "column ended_at of table task"),
        ("step", "result", "{", "column result of table step"),
        ("step", "state", "resting", "column state of table step"),
        ("step", "result", "[]", "the result of step charge does not fit the type that the code declares"),
    ],
)
async def test_a_row_that_cannot_be_read_is_named_and_the_rest_is_shown(
    world: World, table: str, column: str, value: Any, part: str
) -> None:
    await (await world.app.submit(fulfil("1"), task_id="t")).result()
    loaded = await world._store.find("t")
    assert loaded is not None
    change = {column: value}
    if table == "task":
        loaded = msgspec.structs.replace(loaded, task=msgspec.structs.replace(loaded.task, **change))
    else:
        first = msgspec.structs.replace(loaded.steps[0], **change)
        loaded = msgspec.structs.replace(loaded, steps=(first, *loaded.steps[1:]))
    view = await world.app.session.views.view(loaded)
    (fault,) = view.unreadable
    assert part in fault
    assert (view.id, len(view.steps), view.steps[1].result) == ("t", 2, 3)
    assert view.steps[0].state == (value if column == "state" else "completed")


async def test_an_unknown_task_has_no_view(world: World) -> None:
    with pytest.raises(UnknownTask):
        await world.app.task("nobody").view()


def test_every_state_there_is_has_its_word_in_the_types() -> None:
    from typing import get_args

    from arriero.client.task_view import StepKindName, StepStateName
    from arriero.model import ProcessState, StepKind, StepState

    for names, words in ((ProcessState, TaskState), (StepStateName, StepState), (StepKindName, StepKind)):
        assert set(get_args(names)) == {str(word) for word in words}
