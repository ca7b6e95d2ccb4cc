"""Children as operators see them, on each store: found by their parent, which is found by them; and run again alone, or not."""

from typing import Any

import msgspec
from store_world import FAILED, World, gave_up, step

from arriero.core.children import build_child_end
from arriero.model import StepKind, StepRow, TaskRow, TaskState, Verb
from arriero.model.answers import Refusal
from arriero.model.commands import Operate
from arriero.model.moves import BeginUndo, Compensate, Hold, NewStep, Process
from arriero.model.policies import ONE_TRY, ChildOptions, StepPolicy, Supervision
from arriero.store.task_filter import TaskFilter


def child_step(key: str = "#1", **options: Any) -> NewStep:
    policy = msgspec.json.encode(
        StepPolicy(0.0, None, ONE_TRY, Supervision(), child=ChildOptions("{}", **options))
    ).decode()
    fields: dict[str, Any] = {"kind": StepKind.CHILD, "agent": "", "policy": policy, "compensation": policy}
    return step("book", key, idempotency_key="", complete_within=None, **fields)


async def family(world: World, *steps: NewStep, parent: str = "trip-7") -> tuple[TaskRow, list[TaskRow]]:
    """A parent that is held by a process, with children that were submitted in the order of its steps."""
    task = await world.held(parent)
    task, opened = await world.opened(task, *steps)
    numbers = [
        await world.submit(f"{parent}/book.{one.ordinal}", workflow="book", parent_step=one.step_no, depth=1)
        for one in opened
        if one.kind is StepKind.CHILD
    ]
    return task, [await world.task(number) for number in numbers]


async def found(world: World, parent: str = "trip-7", **which: Any) -> list[str]:
    listing = {name: which.pop(name) for name in ("after", "before", "newest_first", "limit") if name in which}
    tasks = await world.store.list_tasks(TaskFilter(parent=parent, **which), **listing)
    assert await world.store.count_listed(TaskFilter(parent=parent, **which), limit=100) >= len(tasks)
    return [task.task_id for task in tasks]


async def test_a_filter_by_parent_names_its_children_in_pages_and_no_other_tasks(world: World) -> None:
    await world.process()
    _, children = await family(world, *(child_step(f"k{one}") for one in range(5)), step())
    _, others = await family(world, child_step(), parent="trip-8")
    await world.submit("alone")
    ids = [child.task_id for child in children]
    assert ids == [f"trip-7/book.{ordinal}" for ordinal in range(1, 6)]
    assert await found(world) == ids
    assert await found(world, limit=2) == ids[:2]
    assert await found(world, after=children[1].task_no, limit=2) == ids[2:4]
    assert await found(world, newest_first=True, before=children[4].task_no) == ids[3::-1]
    assert await found(world, "trip-8") == [other.task_id for other in others]
    assert await found(world, "alone") == await found(world, "nothing") == await found(world, ids[0]) == []


async def test_other_filters_hold_beside_it(world: World) -> None:
    await world.process()
    _, children = await family(world, child_step("a"), child_step("b"))
    (claimed,) = await world.claim(workflows=("book",), limit=1)
    await world.advance(claimed.task, ending=Process("1"))
    assert await found(world, state="processed") == [claimed.task.task_id]
    assert await found(world, state="pending") == [
        child.task_id for child in children if child.task_no != claimed.task.task_no
    ]
    assert await found(world, workflow="trip") == await found(world, apps=("other",)) == []


async def test_children_are_read_by_their_steps_and_each_names_its_parent(world: World) -> None:
    await world.process()
    task, children = await family(world, child_step("a"), child_step("b", is_detached=True), step())
    numbers = [child.parent_step for child in children if child.parent_step is not None]
    assert await world.store.list_children([*numbers, numbers[-1] + 1]) == dict(zip(numbers, children, strict=True))
    parents = await world.store.load_parents(numbers)
    assert [
        (one.task_id, one.workflow, one.label, one.is_detached, one.is_undone) for _, one in sorted(parents.items())
    ] == [
        ("trip-7", "fulfil", "book[a]", False, False),
        ("trip-7", "fulfil", "book[b]", True, False),
    ]
    assert await world.store.find_parent(numbers[0]) == parents[numbers[0]]
    assert parents[numbers[0]].state is task.state is TaskState.PROCESSING


def resubmit(task: TaskRow) -> Operate:
    return Operate(
        actor="operator", verb=Verb.RESUBMIT, task_no=task.task_no, incarnation=task.incarnation, by="ana", reason="r"
    )


async def undone_family(world: World, **options: Any) -> tuple[TaskRow, StepRow, TaskRow]:
    """A parent whose child was undone, as its parent knows."""
    await world.process()
    parent, (child,) = await family(world, child_step(**options))
    assert child.parent_step is not None
    (claimed,) = await world.claim(workflows=("book",))
    await world.advance(claimed.task, ending=BeginUndo(FAILED))
    undoing = await world.task(child.task_no)
    await world.advance(undoing, ending=Compensate(FAILED))
    child = await world.task(child.task_no)
    assert child.state is TaskState.COMPENSATED
    asked = await world.step(child.parent_step)
    ended = build_child_end(asked, child, gave_up(), world.store.now())
    if not options.get("is_detached"):
        await world.advance(await world.task(parent.task_no), delivered=[ended])
    return await world.task(parent.task_no), await world.step(child.parent_step), child


async def test_a_child_is_not_run_again_alone_once_its_parent_is_undone(world: World) -> None:
    parent, _, child = await undone_family(world)
    await world.advance(parent, ending=BeginUndo(FAILED))
    (answer,) = await world.store.apply([resubmit(child)])
    assert isinstance(answer, Refusal)
    assert (answer.verdict, answer.state) == ("parent_undone", TaskState.COMPENSATED)
    assert "is step book of task 'trip-7', which is compensating" in answer.detail
    assert await world.task(child.task_no) == child


async def test_a_child_is_run_again_alone_as_long_as_its_parent_is_not_undone(world: World) -> None:
    parent, _, child = await undone_family(world)
    await world.advance(parent, ending=Hold(FAILED))
    await world.written(resubmit(child))
    assert (await world.task(child.task_no)).state is TaskState.PENDING


async def test_a_detached_child_is_run_again_alone_also_if_its_parent_is_undone(world: World) -> None:
    parent, _, child = await undone_family(world, is_detached=True)
    await world.advance(parent, ending=BeginUndo(FAILED))
    await world.written(resubmit(child))
    assert (await world.task(child.task_no)).state is TaskState.PENDING


async def test_a_child_whose_parent_begins_its_undo_in_the_same_transaction_is_refused(world: World) -> None:
    parent, _, child = await undone_family(world)
    begun, answer = await world.store.apply([world.advance_command(parent, ending=BeginUndo(FAILED)), resubmit(child)])
    assert not isinstance(begun, Refusal)
    assert isinstance(answer, Refusal)
    assert answer.verdict == "parent_undone"


async def test_the_alert_of_a_held_child_names_its_parent(world: World) -> None:
    await world.process()
    await family(world, child_step())
    (claimed,) = await world.claim(workflows=("book",))
    await world.advance(claimed.task, ending=Hold(FAILED))
    (alert,) = await world.store.alerts()
    assert (alert.task_id, alert.parent) == ("trip-7/book.1", "trip-7")
    (taken,) = await world.store.take_alerts(10, 60.0)
    assert taken.parent == "trip-7"
