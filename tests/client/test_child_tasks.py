"""Child tasks through the public API, on a virtual clock."""

import asyncio
from collections.abc import AsyncIterator

import pytest

import arriero
from arriero import (
    Agent,
    App,
    InvalidInput,
    Permanent,
    StepFailed,
    TaskCompensated,
    TaskHeld,
    testing,
    workflow,
)
from arriero.testing import World

shop = Agent("shop", breaker=None)
log: list[str] = []


@shop.step
async def book(what: str) -> str:
    log.append(f"book {what}")
    if what.startswith("full"):
        raise Permanent("no room left", code="full")
    return f"booked {what}"


@book.compensation
async def cancel_booking(what: str) -> None:
    log.append(f"cancel {what}")


@workflow
async def booking(what: str) -> str:
    return await book(what)


@workflow
async def long_booking(what: str) -> str:
    found = await book(what)
    await arriero.sleep(3600)
    return found


@workflow
async def trip(places: list[str]) -> list[str]:
    first = await book("train")
    return [first, *[await booking(place) for place in places]]


@workflow
async def careful_trip(places: list[str]) -> list[str]:
    found = []
    for place in places:
        try:
            found.append(await booking(place))
        except StepFailed as error:
            assert error.details is not None
            found.append(f"{error.code}: {error.message} ({error.details['task_id']})")
    return found


@workflow
async def wide_trip(count: int, at_a_time: int) -> list[str]:
    return await arriero.map(booking, [f"bed {number}" for number in range(count)], at_a_time=at_a_time)


@workflow
async def batch(lines: list[str]) -> list[str]:
    found = await arriero.map(
        lambda line: booking(line).options(task_id=f"line-{line}"), lines, at_a_time=2, return_exceptions=True
    )
    return [one if isinstance(one, str) else one.code for one in found]


@workflow
async def waits_for_two() -> list[str]:
    return await asyncio.gather(long_booking("hotel"), long_booking("car"))


@workflow
async def fails_beside(what: str) -> None:
    async with asyncio.TaskGroup() as group:
        group.create_task(long_booking(what))
        await arriero.sleep(1)
        await book("full plane")


@workflow
async def starts_and_leaves(what: str) -> str:
    return await long_booking(what).options(detach=True)  # type: ignore[no-any-return]


@workflow
async def starts_itself(number: int) -> int:
    return await starts_itself(number + 1)


@workflow
async def takes_an_id(task_id: str) -> str:
    return await booking("hotel").options(task_id=task_id)


@workflow
async def family(number: int) -> list[str]:
    return await trip([f"place {number}"])


WORKFLOWS = [booking, long_booking, trip, careful_trip, wide_trip, batch, waits_for_two, fails_beside]
WORKFLOWS += [starts_and_leaves, starts_itself, takes_an_id, family]


@pytest.fixture
async def world() -> AsyncIterator[World]:
    log.clear()
    async with testing.running(App("travel", agents=[shop], workflows=WORKFLOWS)) as world:
        yield world


@pytest.fixture
def app(world: World) -> App:
    return world.app


async def test_a_workflow_that_is_awaited_gives_the_output_of_its_child(world: World, app: App) -> None:
    task = await app.submit(trip(["hotel", "car"]), task_id="trip-1", tags={"tenant": "acme"}, priority=7)
    assert await task.result() == ["booked train", "booked hotel", "booked car"]
    child = await app.task("trip-1/booking.2").view()
    assert (child.state, child.workflow, child.priority, child.tags) == ("processed", "booking", 7, {"tenant": "acme"})


async def test_a_failed_child_undoes_its_parent_with_the_children_before_in_reverse_order(
    world: World, app: App
) -> None:
    task = await app.submit(trip(["hotel", "car", "full plane"]), task_id="trip-1")
    with pytest.raises(TaskCompensated) as raised:
        await task.result()
    assert "no room left" in str(raised.value)
    assert log[-3:] == ["cancel car", "cancel hotel", "cancel train"]
    states = [(await app.task(f"trip-1/booking.{ordinal}").view()).state for ordinal in (2, 3, 4)]
    assert states == ["compensated"] * 3


async def test_the_code_may_catch_the_failure_of_a_child_which_names_its_task(world: World, app: App) -> None:
    task = await app.submit(careful_trip(["full plane", "hotel"]), task_id="t")
    assert await task.result() == ["full: no room left (t/booking.1)", "booked hotel"]


async def test_map_runs_so_many_children_at_a_time_and_returns_in_the_order_of_the_items(
    world: World, app: App
) -> None:
    task = await app.submit(wide_trip(23, 5), task_id="wide")
    assert await task.result() == [f"booked bed {number}" for number in range(23)]


@pytest.mark.parametrize("at_a_time", [0, -1, 10_001])
async def test_map_with_a_wrong_bound_holds_the_task(world: World, app: App, at_a_time: int) -> None:
    task = await app.submit(wide_trip(2, at_a_time))
    with pytest.raises(TaskHeld, match="arriero.map: at_a_time is"):
        await task.result()


async def test_a_failed_line_of_a_batch_is_resubmitted_alone(world: World, app: App) -> None:
    task = await app.submit(batch(["a", "full b", "c"]), task_id="batch")
    assert await task.result() == ["booked a", "full", "booked c"]
    line = app.task("line-full b")
    assert (await line.view()).state == "compensated"
    await line.resubmit(by="ana", reason="there is room now", arguments={"what": "b"})
    assert await line.result() == "booked b"
    assert (await task.view()).state == "processed"


async def test_the_undo_of_a_parent_takes_a_line_back_that_was_resubmitted_alone(world: World, app: App) -> None:
    task = await app.submit(batch(["a", "full b"]), task_id="batch")
    await task.result()
    line = app.task("line-full b")
    await line.resubmit(by="ana", reason="there is room now", arguments={"what": "b"})
    await line.result()
    await task.compensate(by="ana", reason="a wrong file")
    with pytest.raises(TaskCompensated):
        await task.result()
    assert [(await app.task(f"line-{name}").view()).state for name in ("a", "full b")] == ["compensated"] * 2
    assert log[-2:] == ["cancel b", "cancel a"]


async def test_a_cancelled_parent_cancels_its_children_and_ends_after_them(world: World, app: App) -> None:
    task = await app.submit(waits_for_two(), task_id="t")
    await world.clock.advance(10)
    await task.cancel(by="ana", reason="not wanted")
    with pytest.raises(TaskCompensated):
        await task.result()
    assert sorted(log[-2:]) == ["cancel car", "cancel hotel"]
    views = [await app.task(f"t/long_booking.{ordinal}").view() for ordinal in (1, 2)]
    assert [view.state for view in views] == ["compensated"] * 2


async def test_a_parent_whose_code_fails_while_a_child_runs_cancels_that(world: World, app: App) -> None:
    task = await app.submit(fails_beside("hotel"), task_id="t")
    with pytest.raises(TaskCompensated):
        await task.result()
    assert "cancel hotel" in log
    assert (await app.task("t/long_booking.2").view()).state == "compensated"


async def test_a_detached_child_gives_its_id_and_is_left_alone(world: World, app: App) -> None:
    task = await app.submit(starts_and_leaves("hotel"), task_id="t")
    assert await task.result() == "t/long_booking.1"
    await task.compensate(by="ana", reason="not wanted")
    with pytest.raises(TaskCompensated):
        await task.result()
    assert await app.task("t/long_booking.1").result() == "booked hotel"
    assert log == ["book hotel"]


async def test_a_workflow_that_starts_itself_without_end_is_stopped(world: World, app: App) -> None:
    task = await app.submit(starts_itself(0), task_id="t")
    with pytest.raises(TaskCompensated, match="more than 20 tasks below"):
        await task.result()


@pytest.mark.parametrize("task_id", ["parent", "other"])
async def test_a_child_under_the_id_of_another_task_fails_and_changes_nothing(
    world: World, app: App, task_id: str
) -> None:
    await (await app.submit(booking("own"), task_id="other")).result()
    task = await app.submit(takes_an_id(task_id), task_id="parent")
    with pytest.raises(TaskCompensated, match=f"task '{task_id}' exists with another parent"):
        await task.result()
    assert log == ["book own"]


async def test_a_parent_that_begins_again_gives_its_child_an_id_beside_that_of_the_undone_one(
    world: World, app: App
) -> None:
    task = await app.submit(takes_an_id("mine"), task_id="parent")
    await task.result()
    for _ in range(2):
        await task.compensate(by="ana", reason="another hotel")
        with pytest.raises(TaskCompensated):
            await task.result()
        await task.resubmit(by="ana", reason="this hotel after all")
        assert await task.result() == "booked hotel"
    assert [(child.id, child.state) for child in await task.children()] == [
        ("mine", "compensated"),
        ("mine/3", "compensated"),
        ("mine/5", "processed"),
    ]


async def test_a_grandchild_is_undone_with_its_grandparent(world: World, app: App) -> None:
    task = await app.submit(family(1), task_id="f")
    await task.result()
    await task.compensate(by="ana", reason="not wanted")
    with pytest.raises(TaskCompensated):
        await task.result()
    assert log[-2:] == ["cancel place 1", "cancel train"]


async def test_a_parent_is_resubmitted_with_its_failed_child(world: World, app: App) -> None:
    task = await app.submit(trip(["hotel", "full plane"]), task_id="t")
    with pytest.raises(TaskCompensated):
        await task.result()
    await task.resubmit(by="ana", reason="there is a train", arguments={"places": ["hotel", "bus"]})
    assert await task.result() == ["booked train", "booked hotel", "booked bus"]


async def test_a_child_whose_workflow_is_paused_for_new_tasks_begins_once_it_is_resumed(world: World, app: App) -> None:
    await app.workflow_named("booking").pause(by="ana", reason="a new release", refuse=True)
    task = await app.submit(trip(["hotel"]), task_id="t")
    await world.clock.advance(30)
    assert (await task.view()).state == "processing"
    await app.workflow_named("booking").resume(by="ana", reason="released")
    assert await task.result() == ["booked train", "booked hotel"]


def test_options_name_what_is_wrong() -> None:
    with pytest.raises(InvalidInput, match="priority is 11"):
        booking("x").options(priority=11)
