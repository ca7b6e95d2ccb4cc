"""Tasks that others have started: when one is accepted, how its end is recorded, and who is woken by it."""

from typing import Any

import pytest
from msgspec.structs import replace
from store_checks import broken_links, disagreements
from store_world import TASK_POLICY, World, step, submission

from arriero.core.children import CHILDREN_OPEN_MAX, find_child_step
from arriero.model import Instant, StepKind, StepRow, StepState, TaskRow, TaskState, Verb
from arriero.model.answers import Applied, Refusal, Submitted
from arriero.model.commands import NoteChildEnd, Operate
from arriero.model.failures import StepFailure, TaskFailure, read_step_failure, read_task_failure
from arriero.model.moves import (
    BeginUndo,
    ChildEnded,
    Compensate,
    GaveUp,
    NewStep,
    PlanUndo,
    Process,
    PutDown,
    Succeeded,
)
from arriero.model.policies import ChildOptions, Retry, StepPolicy, Supervision, encode_policy
from arriero.store.contract import Purge, PurgeNamed

POLICY = encode_policy(StepPolicy(0.0, None, Retry(tries=1), Supervision(), child=ChildOptions(TASK_POLICY)))
CODES = ("fulfil", "book")
FULL = StepFailure("permanent", "full", "full")
CANCELLED = TaskFailure("person", "cancelled", code="cancelled")


def child_step(key: str = "#1", **changes: Any) -> NewStep:
    fields: dict[str, Any] = {
        "kind": StepKind.CHILD,
        "name": "book",
        "key": key,
        "arguments": '{"pieces":2}',
        "policy": POLICY,
        "compensation": POLICY,
    }
    return NewStep(**(fields | changes))


async def parent_of(world: World, *steps: NewStep) -> tuple[TaskRow, tuple[StepRow, ...]]:
    """A task that is driven, with these steps."""
    await world.process()
    await world.submit("trip")
    (loaded,) = await world.claim(workflows=CODES)
    task, rows = await world.opened(loaded.task, *(steps or (child_step(),)))
    return task, tuple(rows)


async def begin_child(world: World, of: StepRow, task_id: str = "trip/book.1") -> int:
    return await world.submit(task_id, workflow="book", parent_step=of.step_no, depth=1)


async def end_child(world: World, output: str = '"booked"') -> TaskRow:
    (loaded,) = await world.claim(workflows=CODES)
    answer = await world.advance(loaded.task, ending=Process(output))
    return answer.task


def ended(step_row: StepRow, child: TaskRow | None, outcome: Any = Succeeded('"booked"')) -> ChildEnded:
    number, incarnation = (0, 0) if child is None else (child.task_no, child.incarnation)
    return ChildEnded(step_row.step_no, step_row.opened_at, outcome, number, incarnation)


# --- a child is opened, and submitted
async def test_a_child_runs_from_its_opening_and_needs_no_agent(world: World) -> None:
    task, (row,) = await parent_of(world)
    assert (row.kind, row.state, row.agent, row.locked_by) == (StepKind.CHILD, StepState.RUNNING, "", None)
    assert (task.open_count, row.complete_by, row.not_before) == (1, None, world.clock())


async def test_a_task_does_not_end_before_its_children(world: World) -> None:
    task, _ = await parent_of(world)
    await world.refused(world.advance_command(task, ending=Process('"done"')), "moved_on")


async def test_a_child_is_accepted_while_its_step_runs_and_known_by_its_step(world: World) -> None:
    _, (row,) = await parent_of(world)
    number = await begin_child(world, row)
    child = await world.task(number)
    assert (child.parent_step, child.depth) == (row.step_no, 1)
    assert {no: one.task_no for no, one in (await world.store.load_children([row.step_no])).items()} == {
        row.step_no: number
    }
    assert await world.store.load_children([row.step_no + 1]) == {}


async def test_the_same_child_again_is_the_same_task(world: World) -> None:
    _, (row,) = await parent_of(world)
    number = await begin_child(world, row)
    (again,) = await world.store.submit([submission("trip/book.1", workflow="book", parent_step=row.step_no, depth=1)])
    assert again == Submitted(number, False)


async def test_a_child_under_the_id_of_another_task_is_refused(world: World) -> None:
    _, (row,) = await parent_of(world)
    submit = submission("trip", workflow="book", parent_step=row.step_no, depth=1)
    (answer,) = await world.store.submit([submit])
    assert answer == Refusal("conflict", "task 'trip' exists with another parent")


async def test_a_child_that_is_not_asked_for_any_longer_is_refused(world: World) -> None:
    task, (row,) = await parent_of(world)
    await world.advance(task, [ended(row, None, GaveUp(FULL, False))])
    (answer,) = await world.store.submit([submission("late", workflow="book", parent_step=row.step_no, depth=1)])
    assert isinstance(answer, Refusal)
    assert answer.verdict == "moved_on"
    assert await world.store.find("late") is None


async def test_a_child_of_a_step_of_an_agent_or_of_no_step_is_refused(world: World) -> None:
    _, (row,) = await parent_of(world, step("charge"))
    for number in (row.step_no, row.step_no + 1):
        (answer,) = await world.store.submit([submission("x", workflow="book", parent_step=number, depth=1)])
        assert isinstance(answer, Refusal)
        assert answer.verdict == "moved_on"


async def test_more_open_children_than_the_limit_hold_the_task_and_none_is_opened(world: World) -> None:
    await world.process()
    await world.submit("trip")
    (loaded,) = await world.claim(workflows=CODES)
    many = tuple(child_step(f"k{number}") for number in range(CHILDREN_OPEN_MAX + 1))
    answer = await world.advance(loaded.task, opened=many)
    assert (answer.task.state, answer.task.opened_count) == (TaskState.HELD, 0)
    assert answer.task.failure is not None
    failure = read_task_failure(answer.task.failure)
    assert (failure.code, "at_a_time" in failure.reason) == ("too_many_children", True)


# --- its end
async def test_the_end_of_a_child_is_recorded_in_its_parent_with_its_output(world: World) -> None:
    task, (row,) = await parent_of(world)
    await begin_child(world, row)
    child = await end_child(world)
    answer = await world.advance(task, [ended(row, child)], ending=Process('"done"'))
    assert answer.task.state is TaskState.PROCESSED
    (recorded,) = answer.steps
    assert (recorded.state, recorded.result, recorded.fence) == (StepState.COMPLETED, '"booked"', child.incarnation)
    assert await disagreements(world.store) == []
    assert await broken_links(world.store) == []


async def test_the_failure_of_a_child_is_the_failure_of_its_step(world: World) -> None:
    task, (row,) = await parent_of(world)
    await begin_child(world, row)
    (loaded,) = await world.claim(workflows=CODES)
    child = (await world.advance(loaded.task, ending=BeginUndo(CANCELLED))).task
    child = (await world.advance(child, ending=Compensate(CANCELLED))).task
    answer = await world.advance(
        task, [ended(row, child, GaveUp(StepFailure("permanent", "cancelled", "cancelled"), False))]
    )
    (recorded,) = answer.steps
    assert recorded.state is StepState.FAILED
    assert recorded.failure is not None
    assert read_step_failure(recorded.failure).code == "cancelled"


@pytest.mark.parametrize("what", ["open", "another incarnation", "another task", "none"])
async def test_an_end_that_the_child_does_not_have_is_refused(world: World, what: str) -> None:
    task, (row,) = await parent_of(world)
    number = await begin_child(world, row)
    child = await world.task(number)
    if what == "another incarnation":
        child = await end_child(world)
        child = replace(child, incarnation=2)
    elif what == "another task":
        child = replace(child, task_no=task.task_no)
    await world.refused(world.advance_command(task, [ended(row, None if what == "none" else child)]), "moved_on")
    assert (await world.task(task.task_no)).result_count == 0


async def test_an_end_is_recorded_once(world: World) -> None:
    task, (row,) = await parent_of(world)
    await begin_child(world, row)
    child = await end_child(world)
    answer = await world.advance(task, [ended(row, child)])
    await world.refused(world.advance_command(answer.task, [ended(row, child)]), "moved_on")


# --- who is woken
async def test_a_parent_that_is_put_down_is_woken_by_the_end_of_its_child(world: World) -> None:
    task, (row,) = await parent_of(world)
    await begin_child(world, row)
    await world.advance(task, ending=PutDown(None))
    child = await end_child(world)
    answer = await world.apply(NoteChildEnd(actor="p", step_no=row.step_no))
    assert isinstance(answer, Applied)
    assert (answer.task.not_before, answer.task.unseen_since) == (world.clock(), world.clock())
    (loaded,) = await world.claim(workflows=CODES)
    written = await world.advance(loaded.task, [ended(row, child)])
    assert (written.steps[0].state, written.task.unseen_since) == (StepState.COMPLETED, None)


async def test_a_wake_that_comes_while_the_parent_writes_stays_unseen(world: World) -> None:
    task, (row,) = await parent_of(world)
    await begin_child(world, row)
    await end_child(world)
    await world.written(NoteChildEnd(actor="p", step_no=row.step_no))
    answer = await world.advance(task, opened=[step("charge")])  # decided before the wake was read
    assert (answer.task.unseen_since, answer.task.revision) == (world.clock(), task.revision + 1)
    seen = await world.advance(answer.task)
    assert seen.task.unseen_since is None


@pytest.mark.parametrize("when", ["recorded", "no child", "ended"])
async def test_a_wake_for_what_is_recorded_changes_nothing(world: World, when: str) -> None:
    task, (row,) = await parent_of(world)
    await begin_child(world, row)
    child = await end_child(world)
    ending = Process('"done"') if when == "ended" else None
    await world.advance(task, [ended(row, child)], **({} if ending is None else {"ending": ending}))
    before = await world.task(task.task_no)
    number = row.step_no + 1 if when == "no child" else row.step_no
    answer = await world.apply(NoteChildEnd(actor="p", step_no=number))
    assert isinstance(answer, Refusal)
    assert await world.task(task.task_no) == before


# --- undo
async def test_a_child_is_undone_by_a_compensation_without_an_agent_that_runs_until_the_child_is_undone(
    world: World,
) -> None:
    task, (row,) = await parent_of(world)
    await begin_child(world, row)
    child = await end_child(world)
    written = await world.advance(task, [ended(row, child)])
    undo = NewStep(
        kind=StepKind.COMPENSATION, name="book", key="#1", policy=POLICY, undoes=row.step_no, arguments=row.arguments
    )
    planned = await world.advance(written.task, ending=PlanUndo(CANCELLED, (undo,)))
    (compensation,) = planned.steps
    assert (compensation.state, compensation.agent, find_child_step(compensation)) == (
        StepState.RUNNING,
        "",
        row.step_no,
    )
    await world.refused(world.advance_command(planned.task, ending=Compensate(CANCELLED)), "moved_on")
    operated = await world.written(
        Operate(
            actor="p",
            verb=Verb.COMPENSATE,
            task_no=child.task_no,
            incarnation=child.incarnation,
            by="task trip",
            reason="its parent is undone",
            store_id="s",
        )
    )
    assert operated.task.state is TaskState.COMPENSATING
    await world.refused(
        world.advance_command(planned.task, [ended(compensation, child, Succeeded("null"))]), "moved_on"
    )
    (undoing,) = await world.claim(workflows=CODES)
    undone = (await world.advance(undoing.task, ending=Compensate(CANCELLED))).task
    over = await world.advance(
        planned.task, [ended(compensation, undone, Succeeded("null"))], ending=Compensate(CANCELLED)
    )
    assert (over.task.state, over.steps[0].state) == (TaskState.COMPENSATED, StepState.COMPLETED)
    assert await disagreements(world.store) == []


# --- a process that died before it woke the parent
async def test_a_parent_that_nobody_woke_is_found_until_it_is_woken(world: World) -> None:
    task, (row,) = await parent_of(world)
    await begin_child(world, row)
    await world.advance(task, ending=PutDown(None))
    child = await end_child(world)
    find = world.store.find_unnoticed_children
    assert child.ended_at is not None
    (found,) = await find(Instant(0), child.ended_at, 10)
    assert found == (row.step_no, child.ended_at)
    assert await find(Instant(child.ended_at + 1), Instant(child.ended_at + 2), 10) == []
    assert await find(Instant(0), Instant(child.ended_at - 1), 10) == []
    assert await find(Instant(0), child.ended_at, 0) == []
    await world.written(NoteChildEnd(actor="p", step_no=row.step_no))
    assert await find(Instant(0), child.ended_at, 10) == []


async def test_a_parent_that_is_driven_or_has_recorded_the_end_is_not_found(world: World) -> None:
    task, (row,) = await parent_of(world)
    await begin_child(world, row)
    child = await end_child(world)
    assert child.ended_at is not None
    assert await world.store.find_unnoticed_children(Instant(0), child.ended_at, 10) == []
    await world.advance(task, [ended(row, child)], ending=PutDown(None))
    assert await world.store.find_unnoticed_children(Instant(0), child.ended_at, 10) == []


# --- purging
async def test_a_child_stays_until_its_parent_has_ended(world: World) -> None:
    task, (row,) = await parent_of(world)
    number = await begin_child(world, row)
    child = await end_child(world)
    which = Purge(states=(TaskState.PROCESSED,), ended_before=world.clock.move(1.0))
    assert (await world.store.purge(which, actor="o", limit=10)).count == 0
    by_name = PurgeNamed(what="task", name="trip/book.1", ended_before=which.ended_before)
    kept = await world.store.purge_named(by_name, actor="o", limit=None)
    assert "is a child of task 'trip', which may still undo it" in kept.kept
    await world.advance(task, [ended(row, child)], ending=Process('"done"'))
    which = Purge(states=(TaskState.PROCESSED,), ended_before=world.clock.move(1.0))
    assert (await world.store.purge(which, actor="o", limit=10)).count == 2
    assert await world.store.load(number) is None
