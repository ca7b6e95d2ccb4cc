"""Reports by Agents whose process does not hold the task: what counts, what does not, who is woken."""

import pytest
from store_world import COMPLETE_WITHIN, NOON, TestClock, World, gave_up, kinds, retry_at, step

from arriero.model import Instant, StepRow, StepState
from arriero.model.moves import Fired, Outcome, PutDown, Succeeded


async def _taken_elsewhere(world: World, holder: int | None) -> StepRow:
    """A step taken by process 2 of a task that process 1 holds (or nobody)."""
    ending = {"ending": PutDown(None)} if holder is None else {}
    await world.advance(await world.held(process_no=1), opened=[step()], **ending)
    (dispatch,) = await world.take(2)
    return dispatch.step


@pytest.mark.parametrize("outcome", [Succeeded('"receipt"'), gave_up(in_doubt=True)])
async def test_the_end_of_a_step_wakes_a_task_that_nobody_holds(
    world: World, clock: TestClock, outcome: Outcome
) -> None:
    charge = await _taken_elsewhere(world, None)
    clock.move(2)
    answer = await world.report(charge, outcome, process_no=2)
    assert (answer.task.not_before, answer.task.unseen_since, answer.task.result_count) == (clock.at, clock.at, 1)
    (after,) = answer.steps
    assert (after.delivered_at, after.result_number, after.locked_by) == (clock.at, 1, None)
    assert (await world.store.due(("fulfil",), ())).tasks


async def test_the_end_of_a_step_is_news_for_whoever_holds_the_task(world: World, clock: TestClock) -> None:
    charge = await _taken_elsewhere(world, 1)
    assert await world.store.load_news(1) == []
    clock.move(1)
    answer = await world.report(charge, process_no=2)
    assert await world.store.load_news(1) == [(1, answer.task.revision)]
    assert (answer.task.locked_by, answer.task.unseen_since) == (1, clock.at)


async def test_news_waits_from_its_first_piece_on(world: World, clock: TestClock) -> None:
    await world.advance(await world.held(process_no=1), opened=[step("charge"), step("reserve")])
    charge, reserve = [dispatch.step for dispatch in await world.take(2)]
    first_at = clock.move(1)
    await world.report(charge, process_no=2)
    clock.move(1)
    assert (await world.report(reserve, process_no=2)).task.unseen_since == first_at


async def test_another_attempt_is_no_news_but_grows_the_revision(world: World) -> None:
    charge = await _taken_elsewhere(world, 1)
    before = await world.task(1)
    answer = await world.report(charge, retry_at(NOON + 5, in_doubt=True), process_no=2)
    assert (answer.task.unseen_since, answer.task.revision) == (None, before.revision + 1)
    (after,) = answer.steps
    assert (after.state, after.attempt, after.failure_count, after.in_doubt) == (StepState.PENDING, 2, 1, True)
    (_, recovered) = await world.last_events()
    assert (recovered["type"], recovered["what"]) == ("recover.applied", "retry")


@pytest.mark.odd_history("I25", reason="its policy would have more attempts in a round")
async def test_a_round_that_is_spent_is_told_as_a_cool_off(world: World) -> None:
    charge = await _taken_elsewhere(world, 1)
    await world.report(charge, retry_at(NOON + 5, cool_off=True), process_no=2)
    assert (await world.last_events())[-1]["what"] == "cool_off"


async def test_a_report_counts_whoever_sends_it_if_fence_and_time_hold(world: World) -> None:
    charge = await _taken_elsewhere(world, 1)
    await world.report(charge, process_no=77)


async def test_a_report_of_a_step_that_is_not_there_is_unknown(world: World) -> None:
    charge = await _taken_elsewhere(world, 1)
    await world.refused(world.report_command(charge, step_no=charge.step_no + 1), "unknown")
    await world.refused(world.report_command(charge, step_no=123), "unknown")


async def test_a_report_under_another_fence_is_stale_and_kept(world: World) -> None:
    charge = await _taken_elsewhere(world, 1)
    for fence in (charge.fence - 1, charge.fence + 1):
        await world.refused(world.report_command(charge, fence=fence), "stale")
        (event,) = await world.last_events()
        assert (event["verdict"], event["fence"], event["outcome"]) == ("stale", fence, "succeeded")


@pytest.mark.parametrize("first", [Succeeded("1"), gave_up(), retry_at(NOON)], ids=lambda o: type(o).__name__)
async def test_a_report_after_another_one_is_a_duplicate_and_kept(world: World, first: Outcome) -> None:
    charge = await _taken_elsewhere(world, 1)
    await world.report(charge, first)
    for again in (first, Succeeded('"another"')):
        await world.refused(world.report_command(charge, again), "duplicate")
        assert [event["verdict"] for event in await world.last_events()] == ["duplicate"]


@pytest.mark.odd_history("I19", reason="the clock is set back, to meet the deadline from both sides")
async def test_a_report_at_the_deadline_is_late_and_kept_and_one_before_it_counts(
    world: World, clock: TestClock
) -> None:
    charge = await _taken_elsewhere(world, 1)
    clock.move(COMPLETE_WITHIN)
    await world.refused(world.report_command(charge, gave_up()), "late")
    (event,) = await world.last_events()
    assert (event["verdict"], event["outcome"]) == ("late", "failed")
    clock.to(Instant(clock.at - 1))
    await world.report(charge)


async def test_a_report_of_an_attempt_before_the_present_one_is_stale(world: World) -> None:
    charge = await _taken_elsewhere(world, 1)
    await world.report(charge, retry_at(NOON))
    (second,) = await world.take(3)
    await world.refused(world.report_command(charge), "stale")
    await world.report(second.step)


async def test_refused_reports_link_into_the_task_s_history_and_leave_its_revision(world: World) -> None:
    charge = await _taken_elsewhere(world, 1)
    before = await world.task(1)
    await world.refused(world.report_command(charge, fence=9), "stale")
    after = await world.task(1)
    assert (after.link, after.revision) == (before.link + 1, before.revision)
    await world.advance(before, opened=[step("reserve")])


async def test_a_recorded_step_ends_the_probation(world: World) -> None:
    (task_no,) = await world.suspects("suspect")
    (loaded,) = await world.claim()
    task, (charge,) = await world.running(loaded.task, "charge")
    assert task.lost_count == 2
    answer = await world.advance(task, [world.reported(charge, retry_at(NOON))])
    assert answer.task.lost_count == 2
    (dispatch,) = await world.take(2)
    assert (await world.report(dispatch.step, process_no=2)).task.lost_count == 0
    assert task_no == 1


async def test_the_refusal_of_one_command_leaves_the_others_of_its_batch(world: World) -> None:
    charge = await _taken_elsewhere(world, 1)
    other = await world.held("order-2")
    commands = [
        world.report_command(charge, fence=9),
        world.report_command(charge),
        world.advance_command(other, opened=[step()]),
    ]
    answers = await world.store.apply([*commands, commands[1]])
    assert [getattr(answer, "verdict", "applied") for answer in answers] == ["stale", "applied", "applied", "duplicate"]
    await world.check_chains()
    verdicts = [event["verdict"] for event in await world.events(1) if event["type"] == "step.report"]
    assert verdicts == ["stale", "applied", "duplicate"]
    assert kinds(await world.last_events(2)) == ["step.opened"]


async def test_a_command_that_cannot_be_written_takes_its_whole_batch_back(world: World) -> None:
    charge = await _taken_elsewhere(world, 1)
    task = await world.held("order-2")
    before, history = await world.rows(), [row async for row in world.store.history()]
    impossible = world.advance_command(task, [Fired(charge.step_no, Instant(NOON))])
    fine = [world.report_command(charge), world.report_command(charge, fence=9), world.claim_command(5)]
    await world.submit("order-3")
    with pytest.raises(AssertionError):
        await world.store.apply([*fine, impossible])
    assert (await world.rows())[:2] == before
    assert [row async for row in world.store.history()][: len(history)] == history
    assert len([row async for row in world.store.history()]) == len(history) + 1
    await world.check_chains()
    await world.report(charge)
