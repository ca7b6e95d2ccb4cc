"""Versions of code in every store: who begins a task writes them, who continues it must have them, an operator moves them."""

import itertools
from typing import Any

import msgspec
import pytest
from store_world import FAILED, LEASE, World, step, submission

from arriero.model import Loaded, TaskState, Verb
from arriero.model.answers import Refusal, Submitted
from arriero.model.commands import HandOver, Operate, Start
from arriero.model.moves import BeginUndo, Compensate, Hold, Process, PutDown
from arriero.model.processes import ProcessAbout, Versions
from arriero.store.contract import VersionCount
from arriero.store.task_filter import TaskFilter

NUMBERS = itertools.count(1)
OLD: Versions = {}
NEW: Versions = {"fulfil": ("2", "1")}
ALONE: Versions = {"fulfil": ("2",)}
BLUE: Versions = {"fulfil": ("2@blue", "2")}
GREEN: Versions = {"fulfil": ("3@green", "2@green", "3", "2")}


async def claim(world: World, versions: Versions, **changes: Any) -> list[Loaded]:
    """By a new process with code of these versions."""
    about = msgspec.json.encode(ProcessAbout(versions=dict(versions))).decode()
    process_no = await world.store.register(f"p{next(NUMBERS)}", LEASE, about)
    return await world.claim(process_no, versions=versions, **changes)


async def begun(world: World, versions: Versions, task_id: str = "order-1", **changes: Any) -> int:
    """A task that code of these versions has begun, and which is free and due again."""
    number = await world.submit(task_id, **changes)
    (claimed,) = await claim(world, versions, only=(number,))
    await world.written(world.advance_command(claimed.task, opened=(step(),), ending=PutDown(world.clock())))
    return number


def pin(task_no: int, to: str, incarnation: int = 1) -> Operate:
    return Operate(actor="cli", verb=Verb.PIN, task_no=task_no, incarnation=incarnation, by="ana", reason="r", to=to)


@pytest.mark.parametrize(
    ("versions", "kept"), [(OLD, None), (NEW, "2"), (BLUE, "2@blue"), ({"other": ("9",)}, None)], ids=str
)
async def test_who_begins_a_task_writes_the_newest_version_of_its_code(
    world: World, versions: Versions, kept: str | None
) -> None:
    number = await world.submit()
    (claimed,) = await claim(world, versions)
    assert claimed.task.code_version == (await world.task(number)).code_version == kept
    events = [event for event in await world.events(number) if event["type"] == "task.claimed"]
    assert [event.get("code_version") for event in events] == [kept]


@pytest.mark.parametrize(
    ("began", "goes_on", "is_claimed"),
    [
        (OLD, OLD, True),
        (OLD, NEW, True),
        (OLD, ALONE, False),
        (OLD, BLUE, False),
        (NEW, OLD, False),
        (NEW, ALONE, True),
        (NEW, BLUE, True),
        (BLUE, BLUE, True),
        (BLUE, NEW, False),
        (BLUE, GREEN, False),
    ],
)
async def test_a_task_is_continued_only_by_code_of_its_version(
    world: World, began: Versions, goes_on: Versions, is_claimed: bool
) -> None:
    number = await begun(world, began)
    version = (await world.task(number)).code_version
    assert (await world.store.due(("fulfil",), (), "", goes_on)).tasks is is_claimed
    claimed = await claim(world, goes_on)
    assert [loaded.task.task_no for loaded in claimed] == [number] * is_claimed
    assert (await world.task(number)).code_version == version


async def test_a_claim_that_names_a_task_takes_it_only_with_its_version(world: World) -> None:
    number = await begun(world, BLUE)
    assert await claim(world, NEW, only=(number,)) == []
    assert len(await claim(world, BLUE, only=(number,))) == 1


async def test_an_undo_needs_no_version_and_keeps_that_of_the_task(world: World) -> None:
    number = await world.submit()
    (claimed,) = await claim(world, BLUE)
    await world.written(world.advance_command(claimed.task, ending=BeginUndo(FAILED)))
    task = await world.task(number)
    await world.written(world.advance_command(task, ending=PutDown(world.clock())))
    (undone,) = await claim(world, NEW)
    assert (undone.task.state, undone.task.code_version) == (TaskState.COMPENSATING, "2@blue")


async def test_what_was_undone_begins_again_with_the_newest_code(world: World) -> None:
    number = await world.submit()
    (claimed,) = await claim(world, BLUE)
    await world.written(world.advance_command(claimed.task, ending=BeginUndo(FAILED)))
    await world.written(world.advance_command(await world.task(number), ending=Compensate(FAILED)))
    resubmit = Operate(
        actor="cli", verb=Verb.RESUBMIT, task_no=number, incarnation=1, by="ana", reason="r", store_id="s"
    )
    again = (await world.written(resubmit)).task
    assert (again.code_version, again.started_at) == (None, None)
    (claimed,) = await claim(world, GREEN)
    assert claimed.task.code_version == "3@green"


async def test_a_held_task_that_is_resubmitted_keeps_its_version(world: World) -> None:
    number = await world.submit()
    (claimed,) = await claim(world, BLUE)
    await world.written(world.advance_command(claimed.task, ending=Hold(FAILED)))
    resubmit = Operate(
        actor="cli", verb=Verb.RESUBMIT, task_no=number, incarnation=1, by="ana", reason="r", store_id="s"
    )
    assert (await world.written(resubmit)).task.code_version == "2@blue"
    assert await claim(world, NEW) == []
    assert len(await claim(world, BLUE)) == 1


@pytest.mark.parametrize(
    ("to", "after"), [("3", "3@blue"), ("@green", "2@green"), ("1@green", "1@green"), ("@", "2"), ("1@", None)]
)
async def test_an_operator_moves_a_task_and_only_the_new_version_continues_it(
    world: World, to: str, after: str | None
) -> None:
    number = await world.submit()
    (claimed,) = await claim(world, BLUE)
    world.clock.move(60)
    moved = (await world.written(pin(number, to))).task
    assert (moved.code_version, moved.locked_by, moved.fence) == (after, None, claimed.task.fence + 1)
    await world.refused(world.advance_command(claimed.task, ending=Process("1")), "moved_on")
    assert await claim(world, {"fulfil": ("2@blue",)}) == []
    (again,) = await claim(world, {"fulfil": (after or "1",)})
    assert again.task.code_version == after
    (event,) = [event for event in await world.events(number) if event["type"] == "operator.action"]
    assert (event["code_version"], event["code_version_before"]) == (after or "1", "2@blue")


async def test_a_task_that_waits_for_nobody_is_due_once_it_was_moved(world: World) -> None:
    number = await begun(world, BLUE)
    world.clock.move(3_600)
    assert not (await world.store.due(("fulfil",), (), "", GREEN)).tasks
    assert (await world.written(pin(number, "@green"))).task.not_before == world.clock()
    assert (await world.store.due(("fulfil",), (), "", GREEN)).tasks
    assert [loaded.task.task_no for loaded in await claim(world, GREEN)] == [number]


async def test_a_move_to_the_same_version_and_one_of_a_task_that_has_not_begun_are_refused(world: World) -> None:
    number = await begun(world, BLUE)
    await world.refused(pin(number, "@blue"), "not_allowed")
    fresh = await world.submit("order-2")
    answer = await world.apply(pin(fresh, "@blue"))
    assert isinstance(answer, Refusal)
    assert "not begun, so the newest code begins it" in answer.detail


async def test_a_task_that_begins_with_its_submission_has_the_version_of_its_process(world: World) -> None:
    assert await claim(world, BLUE) == []
    (answer,) = await world.store.submit([submission(start=Start(1, (step(),), "2@blue"))])
    assert isinstance(answer, Submitted)
    assert answer.begun is not None
    assert answer.begun.task.task.code_version == (await world.task(answer.task_no)).code_version == "2@blue"


@pytest.mark.parametrize("versions", [BLUE, GREEN])
async def test_the_next_task_of_a_convoy_begins_with_the_code_that_ends_the_one_before(
    world: World, versions: Versions
) -> None:
    await world.submit("first", convoy="k")
    second = await world.submit("second", convoy="k")
    (first,) = await claim(world, versions)
    over = HandOver(("fulfil",), None, "", versions)
    await world.written(world.advance_command(first.task, ending=Process("1"), hand_over=over))
    task = await world.task(second)
    assert (task.locked_by, task.code_version) == (first.task.locked_by, versions["fulfil"][0])


async def test_a_task_of_a_convoy_that_another_version_has_begun_is_not_handed_over(world: World) -> None:
    await world.submit("first", convoy="k")
    (first,) = await claim(world, BLUE)
    second = await world.submit("second", convoy="k")
    await world.written(world.advance_command(first.task, ending=Hold(FAILED)))
    skip = Operate(
        actor="cli", verb=Verb.RESUBMIT, task_no=first.task.task_no, incarnation=1, by="ana", reason="r", store_id="s"
    )
    await world.written(skip)
    (again,) = await claim(world, BLUE)
    over = HandOver(("fulfil",), None, "", BLUE)
    await world.written(world.advance_command(again.task, ending=Process("1"), hand_over=over))
    assert (await world.task(second)).code_version == "2@blue"


async def test_a_filter_names_tasks_by_the_number_and_the_deployment_of_their_code(world: World) -> None:
    await begun(world, OLD, "plain")
    await begun(world, NEW, "two", workflow="fulfil", priority=9)
    await world.submit("fresh", delay=3_600)

    async def named(code_version: str) -> list[str]:
        return [task.task_id for task in await world.store.list_tasks(TaskFilter(code_version=code_version))]

    blue = await world.submit("blue", priority=9)
    assert len(await claim(world, BLUE, only=(blue,))) == 1
    assert await named("1") == ["plain"]
    assert await named("2") == ["two", "blue"]
    assert await named("2@") == ["two"]
    assert await named("@blue") == await named("2@blue") == ["blue"]
    assert await named("@") == ["plain", "two"]
    assert await named("@blu_") == await named("3") == []
    assert await world.store.count_listed(TaskFilter(code_version="2"), limit=10) == 2


async def test_the_open_tasks_of_each_version_are_counted_by_state_with_the_oldest(world: World) -> None:
    at = world.clock()
    await begun(world, BLUE, "a")
    world.clock.move(10)
    await world.submit("b", delay=60)
    (loaded,) = await claim(world, BLUE)
    await world.written(world.advance_command(loaded.task, ending=Hold(FAILED)))
    assert sorted(await world.store.count_versions(), key=str) == [
        VersionCount("", "fulfil", "2@blue", True, TaskState.HELD, 1, at),
        VersionCount("", "fulfil", None, False, TaskState.PENDING, 1, world.clock()),
    ]
