"""What Agents outside of Python need of a store: attempts that go back unbegun, a secret for capabilities, a list of attempts."""

import pytest
from store_world import COMPLETE_WITHIN, NOON, TestClock, World, kinds, step

from arriero.commands import BeginTry, BeginUndo, GaveUp, ReleaseAttempt, RetryAsked
from arriero.failures import StepFailure, TaskFailure
from arriero.model import Instant, StepRow, StepState, later
from arriero.store.contract_parts import CAPABILITY_SECRET, HeldAttempt


def release(of: StepRow) -> ReleaseAttempt:
    return ReleaseAttempt(actor="agent", step_no=of.step_no, fence=of.fence)


async def running(world: World) -> StepRow:
    _, (charge,) = await world.running(await world.held(), "charge")
    return charge


async def test_a_released_attempt_is_taken_again_under_another_fence_and_costs_nothing(
    world: World, clock: TestClock
) -> None:
    charge = await running(world)
    clock.move(2)
    await world.written(release(charge))
    after = await world.step(charge.step_no)
    assert (after.state, after.fence, after.locked_by) == (StepState.PENDING, charge.fence + 1, None)
    assert (after.attempt, after.failure_count, after.lost_count, after.in_doubt) == (1, 0, 0, False)
    assert await world.last_events() == [{"type": "attempt.released", "step": 1, "fence": charge.fence + 1}]
    (again,) = await world.take(2)
    assert (again.step.attempt, again.step.fence, again.step.locked_by) == (1, charge.fence + 2, 2)
    await world.report(again.step, process_no=2)


def called_again(of: StepRow) -> BeginTry:
    return BeginTry(
        actor="agent", process_no=1, step_no=of.step_no, fence=of.fence, app="", agent=of.agent, in_doubt=True
    )


async def test_a_released_attempt_keeps_the_doubt_of_an_earlier_call(world: World) -> None:
    charge = await running(world)
    await world.apply(called_again(charge))
    await world.written(release(charge))
    assert (await world.step(charge.step_no)).in_doubt


@pytest.mark.parametrize("again", [True, False])
async def test_a_report_that_knows_nothing_of_an_earlier_call_does_not_settle_its_doubt(
    world: World, clock: TestClock, again: bool
) -> None:
    charge = await running(world)
    await world.apply(called_again(charge))
    failure = StepFailure("transient" if again else "permanent", "it was not begun")
    outcome = RetryAsked(failure, False, clock.at) if again else GaveUp(failure, False)
    await world.report(charge, outcome)
    after = await world.step(charge.step_no)
    assert (after.state, after.in_doubt) == (StepState.PENDING if again else StepState.FAILED, True)


async def test_nothing_that_speaks_for_a_released_attempt_counts_any_more(world: World) -> None:
    charge = await running(world)
    await world.written(release(charge))
    await world.refused(release(charge), "stale")
    await world.refused(world.report_command(charge), "stale")


async def test_an_attempt_whose_time_is_over_cannot_be_released(world: World, clock: TestClock) -> None:
    charge = await running(world)
    clock.to(charge.complete_by)
    await world.refused(release(charge), "late")


async def test_an_attempt_that_has_reported_cannot_be_released(world: World) -> None:
    charge = await running(world)
    await world.report(charge)
    await world.refused(release(charge), "duplicate")
    await world.refused(ReleaseAttempt(actor="agent", step_no=99 << 20, fence=1), "unknown")


async def test_a_step_released_while_its_task_is_undone_is_withdrawn_and_leaves_no_doubt(world: World) -> None:
    task, (charge,) = await world.running(await world.held(), "charge")
    await world.advance(task, ending=BeginUndo(TaskFailure("refused", "no")))
    await world.written(release(charge))
    after = await world.step(charge.step_no)
    assert (after.state, after.in_doubt) == (StepState.WITHDRAWN, False)
    assert kinds(await world.last_events()) == ["attempt.released", "step.withdrawn"]


async def test_a_released_request_waits_within_its_wait_within_anew(world: World, clock: TestClock) -> None:
    policy = step().policy.replace('"wait_within":null', '"wait_within":7.0')
    task = await world.held()
    _, (charge,) = await world.opened(task, step(policy=policy, wait_within=7.0, take=True))
    clock.move(5)
    await world.written(release(charge))
    assert (await world.step(charge.step_no)).wait_by == later(clock(), 7)


async def test_the_attempts_of_a_process_are_listed_with_their_deadlines(world: World) -> None:
    task, (charge,) = await world.running(await world.held(), "charge")
    _, (reserve, _) = await world.opened(task, step("reserve", take=True), step("ship"))
    by = later(Instant(NOON), COMPLETE_WITHIN)
    wanted = [HeldAttempt(charge.step_no, 1, by), HeldAttempt(reserve.step_no, 1, by)]
    assert await world.store.list_running_attempts(1) == wanted
    assert await world.store.list_running_attempts(2) == []


async def test_a_secret_is_random_and_stays_the_same(world: World) -> None:
    secret = await world.store.read_secret(CAPABILITY_SECRET)
    assert len(secret) == 32
    assert await world.store.read_secret(CAPABILITY_SECRET) == secret
    assert await world.store.read_secret("another") != secret
