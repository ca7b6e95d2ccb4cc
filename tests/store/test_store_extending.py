"""A running attempt asks for more time, and keeps a value for the attempts after it: under its fence, in time, or not at all."""

from collections.abc import Callable

import msgspec
import pytest
from store_world import COMPLETE_WITHIN, NOON, TestClock, World, gave_up, retry_at

from arriero.events.base import payload_hash
from arriero.model import Instant, StepRow, Verb, later
from arriero.model.answers import Answer, AttemptApplied
from arriero.model.commands import CommandOfAttempt, ExtendAttempt, Operate, SaveCheckpoint
from arriero.model.failures import TaskFailure
from arriero.model.moves import Hold

FAR = later(Instant(NOON), 1000)


def extension(of: StepRow, seconds: float, process_no: int = 1, latest: Instant = FAR) -> ExtendAttempt:
    return ExtendAttempt(
        actor="agent", process_no=process_no, step_no=of.step_no, fence=of.fence, seconds=seconds, latest=latest
    )


def checkpoint(
    of: StepRow, value: str = '{"page":3}', process_no: int = 1, replaces: str | None = None
) -> SaveCheckpoint:
    return SaveCheckpoint(
        actor="agent",
        process_no=process_no,
        step_no=of.step_no,
        fence=of.fence,
        value=value,
        replaces=payload_hash(replaces),
    )


Command = Callable[[StepRow], CommandOfAttempt]
BOTH = pytest.mark.parametrize("command", [lambda of: extension(of, 60.0), checkpoint], ids=["extend", "checkpoint"])


async def running(world: World) -> StepRow:
    _, (charge,) = await world.running(await world.held(), "charge")
    return charge


async def applied(world: World, command: CommandOfAttempt) -> AttemptApplied:
    answer: Answer = await world.apply(command)
    assert isinstance(answer, AttemptApplied), answer
    return answer


# --- more time
async def test_an_extension_moves_complete_by_to_so_many_seconds_from_now(world: World, clock: TestClock) -> None:
    charge = await running(world)
    clock.move(8)
    answer = await applied(world, extension(charge, 60.0))
    assert answer == AttemptApplied(later(clock(), 60), clock())
    after = await world.step(charge.step_no)
    assert (after.complete_by, after.fence, after.attempt) == (later(clock(), 60), charge.fence, 1)
    (event,) = await world.last_events()
    assert event == {"type": "attempt.extended", "step": 1, "fence": 1, "complete_by": after.complete_by}


async def test_what_is_reported_after_the_old_deadline_and_before_the_new_one_counts(
    world: World, clock: TestClock
) -> None:
    charge = await running(world)
    await applied(world, extension(charge, 60.0))
    clock.move(59)
    assert (await world.report(charge)).task.result_count == 1


async def test_the_holder_of_the_task_goes_on_with_the_revision_that_it_knows(world: World) -> None:
    task, (charge,) = await world.running(await world.held(), "charge")
    await applied(world, extension(charge, 60.0))
    await applied(world, checkpoint(charge))
    assert (await world.task(1)).revision == task.revision
    await world.advance(task, [world.reported(charge)])


async def test_an_extension_never_goes_past_its_latest_instant_and_never_back(world: World, clock: TestClock) -> None:
    charge = await running(world)
    latest = later(Instant(NOON), 30)
    assert (await applied(world, extension(charge, 60.0, latest=latest))).complete_by == latest
    links = len(await world.links())
    for seconds in (60.0, 1.0):
        assert (await applied(world, extension(charge, seconds, latest=latest))).complete_by == latest
    assert len(await world.links()) == links  # nothing moved, so nothing is told


async def test_an_extended_attempt_expires_at_its_new_deadline_and_not_before(world: World, clock: TestClock) -> None:
    term = await world.lead(await world.process())
    charge = await running(world)
    await applied(world, extension(charge, 60.0))
    clock.move(COMPLETE_WITHIN + 1)
    assert (await world.store.load_overdue(10, COMPLETE_WITHIN)).expired == ()
    await world.refused(world.recover_command(charge, term), "moved_on")
    clock.move(60)
    overdue = await world.store.load_overdue(10, COMPLETE_WITHIN)
    assert [one.step_no for one in overdue.expired] == [charge.step_no]
    await world.written(world.recover_command(charge, term))


# --- guards, of both
@BOTH
async def test_an_attempt_whose_time_is_over_is_refused(world: World, clock: TestClock, command: Command) -> None:
    charge = await running(world)
    clock.to(charge.complete_by)
    await world.refused(command(charge), "late")


@BOTH
async def test_another_process_than_the_one_that_took_it_is_refused(world: World, command: Command) -> None:
    charge = await running(world)
    await world.refused(msgspec.structs.replace(command(charge), process_no=2), "moved_on")


@BOTH
async def test_an_attempt_that_has_reported_is_refused(world: World, command: Command) -> None:
    charge = await running(world)
    await world.report(charge)
    await world.refused(command(charge), "moved_on")


@BOTH
async def test_the_attempt_before_the_one_under_way_is_refused(
    world: World, clock: TestClock, command: Command
) -> None:
    first = await running(world)
    await world.report(first, retry_at(clock.at))
    await world.take(1)
    await world.refused(command(first), "stale")


@BOTH
async def test_a_step_that_is_not_there_is_refused(world: World, command: Command) -> None:
    charge = await running(world)
    await world.refused(msgspec.structs.replace(command(charge), step_no=(77 << 20) + 1), "unknown")


# --- what is kept
async def test_the_next_attempt_is_dispatched_with_what_the_one_before_kept_last(
    world: World, clock: TestClock
) -> None:
    first = await running(world)
    await applied(world, checkpoint(first, "1"))
    answer = await applied(world, checkpoint(first, "2", replaces="1"))
    assert answer == AttemptApplied(first.complete_by, clock())
    events = await world.last_events()
    assert [(event["type"], event["step"], event["fence"]) for event in events] == [("attempt.checkpoint", 1, 1)]
    await world.report(first, retry_at(clock.at))
    (second,) = await world.take(1)
    assert (second.step.attempt, second.step.checkpoint) == (2, "2")


async def test_an_attempt_taken_anew_after_its_process_was_lost_has_it_too(world: World) -> None:
    lost, other = await world.process("p1"), await world.process("p2")
    task, (charge,) = await world.running(await world.held(process_no=lost), "charge")
    await applied(world, checkpoint(charge, process_no=lost))
    await world.lose(lost)
    await world.written(world.free_command(task, [charge], lost_by=lost))
    (again,) = await world.take(other)
    assert (again.step.attempt, again.step.checkpoint) == (1, '{"page":3}')


async def test_the_same_value_twice_is_kept_once(world: World) -> None:
    charge = await running(world)
    await applied(world, checkpoint(charge))
    links = len(await world.links())
    await applied(world, checkpoint(charge))
    assert len(await world.links()) == links


async def test_a_value_that_arrives_after_a_later_one_is_refused(world: World) -> None:
    charge = await running(world)
    await applied(world, checkpoint(charge, "1"))
    await applied(world, checkpoint(charge, "2", replaces="1"))
    await world.refused(checkpoint(charge, "1"), "moved_on")
    assert (await world.step(charge.step_no)).checkpoint == "2"


async def test_a_value_outlives_the_end_of_its_step_and_goes_with_other_arguments(
    world: World, clock: TestClock
) -> None:
    task, (charge,) = await world.running(await world.held(), "charge")
    await applied(world, checkpoint(charge))
    failure = TaskFailure("step", "charge: declined", "charge", "declined", redo=(1,))
    answer = await world.advance(task, [world.reported(charge, gave_up())], ending=Hold(failure))
    assert (await world.step(charge.step_no)).checkpoint == '{"page":3}'
    edited = Operate(
        actor="cli",
        verb=Verb.RESUBMIT,
        task_no=1,
        incarnation=answer.task.incarnation,
        by="ana",
        reason="typo",
        store_id="s",
        step=1,
        arguments='{"amount":6}',
    )
    await world.written(edited)
    after = await world.step(charge.step_no)
    assert (after.checkpoint, after.arguments) == (None, '{"amount":6}')
    assert after.idempotency_key != charge.idempotency_key
