"""What running attempts and workflow code publish: under their guards, the latest value, and merged in the reply queue."""

from itertools import count
from typing import Any

import msgspec
import pytest
from store_world import NOON, TestClock, World, gave_up, retry_at, step

from arriero.model import Instant, StatusRow, StepRow, TaskState
from arriero.model.answers import AttemptApplied
from arriero.model.commands import PublishProgress
from arriero.model.moves import Process
from arriero.model.progress import Published
from arriero.store.contract import Purge

WEB = "web-1"
instants = count(NOON - 10_000)


def publishing(of: StepRow, value: object = 1, process_no: int = 1, **changes: Any) -> PublishProgress:
    text = msgspec.json.encode(value).decode()
    fields = {"process_no": process_no, "step_no": of.step_no, "fence": of.fence, "value": text, "at": next(instants)}
    return PublishProgress(actor="agent", **(fields | changes))


async def running(world: World, **changes: Any) -> StepRow:
    _, (charge,) = await world.running(await world.held(**changes), "charge")
    return charge


async def publish(world: World, of: StepRow, value: object) -> None:
    assert isinstance(await world.apply(publishing(of, value)), AttemptApplied)


def last(of: StepRow, value: object) -> Published:
    """A value as a report brings it."""
    return Published(of.ordinal, msgspec.json.encode(value).decode(), of.fence, Instant(next(instants)))


async def values(world: World, task_no: int = 1) -> dict[int, str | None]:
    return {row.ordinal: row.value for row in await world.store.published(task_no)}


async def progress(world: World) -> list[StatusRow]:
    return [status for status in await world.store.load_statuses(WEB, 100) if status.kind == "progress"]


async def shown(world: World) -> list[tuple[str, object]]:
    data = [msgspec.json.decode(status.data) for status in await progress(world)]
    return [(one["step"], one["value"]) for one in data]


# --- of a step
async def test_the_latest_value_of_a_step_replaces_the_one_before_and_changes_neither_task_nor_history(
    world: World, clock: TestClock
) -> None:
    charge = await running(world)
    task, links = await world.task(1), await world.links()
    await publish(world, charge, {"page": 1})
    clock.move(2)
    await publish(world, charge, {"page": 2})
    (row,) = await world.store.published(1)
    assert (row.ordinal, row.value, row.number, row.fence) == (1, '{"page":2}', 2, charge.fence)
    assert (await world.task(1), await world.links()) == (task, links)
    await world.report(charge)  # its process continues with what it knows


async def test_what_an_attempt_publishes_after_its_deadline_changes_nothing(world: World, clock: TestClock) -> None:
    charge = await running(world)
    await publish(world, charge, 1)
    clock.to(charge.complete_by)
    await world.refused(publishing(charge, 2), "late")
    assert await values(world) == {1: "1"}


async def test_what_an_attempt_publishes_after_its_report_changes_nothing(world: World) -> None:
    charge = await running(world)
    await world.report(charge)
    await world.refused(publishing(charge), "moved_on")
    assert await values(world) == {}


async def test_what_the_attempt_before_publishes_changes_nothing(world: World, clock: TestClock) -> None:
    first = await running(world)
    await world.report(first, retry_at(clock.at))
    (again,) = await world.take(1)
    await publish(world, again.step, "second")
    await world.refused(publishing(first, "first"), "stale")
    assert await values(world) == {1: '"second"'}


async def test_a_command_that_arrives_again_after_a_later_one_changes_nothing(world: World, clock: TestClock) -> None:
    charge = await running(world, reply_to=WEB)
    first, second = publishing(charge, 1), publishing(charge, 2)
    for command in (first, second, first, second):
        clock.move(1)
        assert isinstance(await world.apply(command), AttemptApplied)
    _, row = await world.store.published(1)
    assert (row.value, row.number) == ("2", 2)
    assert await shown(world) == [("charge", 2)]
    await world.report(charge)


async def test_a_report_does_not_bring_a_value_back_that_is_written_already(world: World) -> None:
    charge = await running(world)
    brought = last(charge, "first")
    await publish(world, charge, "second")
    command = world.report_command(charge)
    await world.written(
        msgspec.structs.replace(command, report=msgspec.structs.replace(command.report, published=brought))
    )
    assert await values(world) == {1: '"second"'}


async def test_what_another_process_publishes_changes_nothing(world: World) -> None:
    charge = await running(world)
    await world.refused(publishing(charge, process_no=2), "moved_on")
    await world.refused(publishing(charge, step_no=(77 << 20) + 1), "unknown")
    assert await values(world) == {}


async def test_a_report_brings_the_last_value_in_its_own_commit(world: World) -> None:
    charge = await running(world)
    command = world.report_command(charge)
    report = msgspec.structs.replace(command.report, published=last(charge, "all"))
    await world.written(msgspec.structs.replace(command, report=report))
    assert await values(world) == {1: '"all"'}


@pytest.mark.parametrize("outcome", ["succeeded", "failed"])
async def test_an_advance_brings_the_last_values_of_its_code_and_of_the_attempts_it_delivers(
    world: World, outcome: str
) -> None:
    task, (charge,) = await world.running(await world.held(), "charge")
    told = world.reported(charge) if outcome == "succeeded" else world.reported(charge, gave_up())
    command = world.advance_command(task, [msgspec.structs.replace(told, published=last(charge, 9))])
    await world.written(msgspec.structs.replace(command, published='"charged"'))
    assert await values(world) == {0: '"charged"', 1: "9"}


async def test_a_report_that_is_refused_publishes_nothing(world: World, clock: TestClock) -> None:
    charge = await running(world)
    clock.to(charge.complete_by)
    command = world.report_command(charge)
    report = msgspec.structs.replace(command.report, published=last(charge, 1))
    await world.refused(msgspec.structs.replace(command, report=report), "late")
    assert await values(world) == {}


# --- of a task
async def test_code_that_publishes_the_same_again_in_a_replay_changes_nothing(world: World, clock: TestClock) -> None:
    task = await world.held(reply_to=WEB)
    command = world.advance_command(task)
    task = (await world.written(msgspec.structs.replace(command, published="1"))).task
    before = await world.store.published(1)
    clock.move(5)
    await world.written(msgspec.structs.replace(world.advance_command(task), published="1"))
    assert await world.store.published(1) == before
    assert await shown(world) == [("", 1)]


async def test_an_advance_that_is_refused_publishes_nothing(world: World) -> None:
    task = await world.held()
    command = msgspec.structs.replace(world.advance_command(task), published="1")
    await world.refused(msgspec.structs.replace(command, revision=task.revision + 1), "moved_on")
    assert await values(world) == {}


async def test_a_task_without_a_reply_queue_has_no_status_of_what_it_publishes(world: World) -> None:
    charge = await running(world)
    await publish(world, charge, 1)
    assert await progress(world) == []
    assert await values(world) == {1: "1"}


# --- in the reply queue
async def test_the_first_value_is_shown_immediately_with_the_label_of_its_step(world: World) -> None:
    charge = await running(world, reply_to=WEB)
    await publish(world, charge, {"page": 1})
    (status,) = await progress(world)
    assert (status.number, status.task_id, status.at) == (0, "order-1", NOON)
    assert await shown(world) == [("charge", {"page": 1})]


async def test_at_most_one_status_a_second_is_shown_and_the_latest_value_is_never_lost(
    world: World, clock: TestClock
) -> None:
    charge = await running(world, reply_to=WEB)
    await publish(world, charge, 0)
    for value in range(1, 4):
        clock.move(0.2)
        await publish(world, charge, value)
        assert await shown(world) == [("charge", 0)]
    clock.move(0.4)  # a second after the first one
    assert await shown(world) == [("charge", 0), ("charge", 3)]
    await publish(world, charge, 4)
    assert await shown(world) == [("charge", 3)]
    clock.move(1)
    assert await shown(world) == [("charge", 3), ("charge", 4)]


async def test_an_older_status_that_nobody_has_read_is_replaced(world: World, clock: TestClock) -> None:
    charge = await running(world, reply_to=WEB)
    for value in range(5):
        clock.move(1)
        await publish(world, charge, value)
        assert await shown(world) == [("charge", value)]


async def test_a_status_that_was_read_and_acknowledged_is_followed_by_the_next_a_second_later(
    world: World, clock: TestClock
) -> None:
    charge = await running(world, reply_to=WEB)
    await publish(world, charge, 0)
    (read,) = await progress(world)
    await world.store.acknowledge([(WEB, read.no)])
    await publish(world, charge, 1)
    assert await shown(world) == []
    clock.move(1)
    assert await shown(world) == [("charge", 1)]


async def test_two_steps_and_the_code_of_a_task_share_its_second(world: World, clock: TestClock) -> None:
    task = await world.held(reply_to=WEB)
    task, (charge, reserve) = await world.opened(task, step(take=True), step("reserve", take=True))
    await publish(world, charge, "a")
    await publish(world, reserve, "b")
    await world.written(msgspec.structs.replace(world.advance_command(task), published='"c"'))
    assert await shown(world) == [("charge", "a")]
    clock.move(1)
    assert await shown(world) == [("charge", "a"), ("", "c")]
    assert await values(world) == {0: '"c"', 1: '"a"', 2: '"b"'}


async def test_once_the_task_has_ended_the_last_value_is_shown_before_the_end(world: World) -> None:
    task, (charge,) = await world.running(await world.held(reply_to=WEB), "charge")
    await publish(world, charge, 1)
    await publish(world, charge, 2)
    await world.advance(task, [world.reported(charge)], ending=Process('"done"'))
    kinds = [status.kind for status in await world.store.load_statuses(WEB, 100)]
    assert kinds[-3:] == ["progress", "progress", "completed"]
    assert await shown(world) == [("charge", 1), ("charge", 2)]


async def test_numbers_of_the_other_statuses_stay_without_gaps(world: World) -> None:
    task, (charge,) = await world.running(await world.held(reply_to=WEB), "charge")
    await publish(world, charge, 1)
    await world.advance(task, [world.reported(charge)], ending=Process('"done"'))
    told = await world.store.load_statuses(WEB, 100)
    assert [s.number for s in told if s.kind != "progress"] == [1, 2, 3]


# --- followed
async def test_the_version_of_a_task_changes_with_each_commit_and_each_published_value_and_with_nothing_else(
    world: World, clock: TestClock
) -> None:
    task, (charge,) = await world.running(await world.held(), "charge")
    seen = [await world.store.load_versions([1, 77])]
    await publish(world, charge, 1)
    seen.append(await world.store.load_versions([1, 77]))
    await publish(world, charge, 1)
    seen.append(await world.store.load_versions([1, 77]))
    await world.advance(task, [world.reported(charge)])
    seen.append(await world.store.load_versions([1, 77]))
    assert all(one.keys() == {1} for one in seen)
    assert len({one[1] for one in seen}) == len(seen)
    clock.move(10)
    await world.refused(publishing(charge, 2), "moved_on")
    assert await world.store.load_versions([1]) == seen[-1]


# --- with its task
async def test_what_is_published_goes_with_its_task(world: World, clock: TestClock) -> None:
    task, (charge,) = await world.running(await world.held(), "charge")
    await publish(world, charge, 1)
    command = world.advance_command(task, [world.reported(charge)], ending=Process('"done"'))
    await world.written(msgspec.structs.replace(command, published="2"))
    assert await values(world) == {0: "2", 1: "1"}
    clock.move(10)
    which = Purge(states=(TaskState.PROCESSED,), ended_before=clock())
    assert (await world.store.purge(which, actor="janitor", limit=10)).count == 1
    assert await values(world) == {}
