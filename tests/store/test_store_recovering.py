"""The Supervisor's writes: only under its term, only while still expired; and what it is shown."""

import msgspec
import pytest
from store_world import (
    COMPLETE_WITHIN,
    FAILED,
    NOON,
    TestClock,
    World,
    gave_up,
    kinds,
    retry_at,
    step,
    submission,
    timer,
)

from arriero.core.lease import on_stuck
from arriero.model import Instant, Loaded, StepRow, StepState, TaskRow, TaskState, later
from arriero.model.answers import Refusal
from arriero.model.commands import EndByLimit
from arriero.model.failures import StepFailure
from arriero.model.moves import BeginUndo, GaveUp, Hold, PutDown

PROGRESS = 60.0
STARVED = GaveUp(StepFailure("expired", "no Agent took it", "not_taken"), False)


# --- what it is shown
async def test_expired_steps_are_shown_longest_first_from_the_instant_of_their_deadline(
    world: World, clock: TestClock
) -> None:
    task, (first,) = await world.running(await world.held(), "charge")
    clock.move(1)
    _, (second,) = await world.running(task, "reserve")
    clock.to(Instant(NOON + int(COMPLETE_WITHIN * 1e6) - 1))
    assert (await world.store.load_overdue(10, PROGRESS)).expired == ()
    clock.move(0.000001)
    overdue = await world.store.load_overdue(10, PROGRESS)
    assert (overdue.now, overdue.expired) == (clock.at, (first,))
    clock.move(5)
    assert (await world.store.load_overdue(10, PROGRESS)).expired == (first, second)
    assert (await world.store.load_overdue(1, PROGRESS)).expired == (first,)


async def test_the_next_deadline_is_the_earliest_of_attempts_requests_and_limits_that_lies_ahead(
    world: World, clock: TestClock
) -> None:
    async def next_at(ahead_seconds: float) -> Instant | None:
        return (await world.store.load_overdue(10, PROGRESS, ahead_seconds)).next_at

    assert await next_at(100.0) is None
    limited = await world.held("limited", complete_within=9.0)
    assert await next_at(100.0) == later(NOON, 9.0)
    await world.opened(limited, step(wait_within=7.0), step("reserve", take=True, complete_within=5.0))
    assert await next_at(100.0) == later(NOON, 5.0)
    assert await next_at(5.0) == later(NOON, 5.0)
    assert await next_at(4.9) is None  # further ahead than was asked for
    assert await next_at(0.0) is None
    clock.move(5.0)
    assert await next_at(100.0) == later(NOON, 7.0)  # what has expired is found, and is no deadline ahead
    clock.move(2.0)
    assert await next_at(100.0) == later(NOON, 9.0)
    clock.move(2.0)
    assert await next_at(100.0) is None


async def test_each_list_is_in_the_order_of_its_deadlines_not_of_the_rows(world: World, clock: TestClock) -> None:
    for name, seconds in (("slow", 9.0), ("fast", 1.0), ("middle", 5.0)):
        task = await world.held(name, complete_within=seconds)
        await world.opened(task, step(wait_within=seconds), step("reserve", take=True, complete_within=seconds))
        later_on = await world.held(f"{name}-unseen")
        await world.advance(later_on, opened=[step(take=True)])
    for name, seconds in (("slow", 3.0), ("fast", 1.0), ("middle", 1.0)):
        clock.move(seconds)
        found = await world.store.find(f"{name}-unseen")
        assert found is not None
        await world.report(found.steps[0], process_no=2)
    clock.move(100)
    overdue = await world.store.load_overdue(10, 0.0)
    ids = {loaded.task.task_no: loaded.task.task_id for loaded in await world.rows()}
    wanted = ["fast", "middle", "slow"]
    assert [ids[one.task_no] for one in overdue.expired] == wanted
    assert [ids[one.task_no] for one in overdue.starved] == wanted
    assert [loaded.task.task_id for loaded in overdue.past_limit] == wanted
    assert [loaded.task.task_id for loaded in overdue.stuck] == ["slow-unseen", "fast-unseen", "middle-unseen"]
    short = await world.store.load_overdue(2, 0.0)
    assert [len(one) for one in (short.expired, short.starved, short.past_limit, short.stuck)] == [2, 2, 2, 2]


async def test_only_requests_that_waited_too_long_for_their_first_attempt_starve(
    world: World, clock: TestClock
) -> None:
    _, steps = await world.opened(
        await world.held(), step(wait_within=2.0), step("reserve", wait_within=2.0), step("ship"), timer(NOON + 1)
    )
    (taken,) = await world.take(room=(("payments", 1),), names=("reserve",))
    clock.move(2)
    assert (await world.store.load_overdue(10, PROGRESS)).starved == (steps[0],)
    await world.report(taken.step, retry_at(NOON))
    assert (await world.store.load_overdue(10, PROGRESS)).starved == (steps[0],)


async def test_tasks_past_their_own_limit_are_shown_whoever_holds_them_until_they_are_undone(
    world: World, clock: TestClock
) -> None:
    await world.submit("pending", complete_within=2.0, workflow="elsewhere")
    task = await world.held("held", complete_within=1.0)
    await world.submit("no-limit")
    clock.move(2)
    shown = (await world.store.load_overdue(10, PROGRESS)).past_limit
    assert [loaded.task.task_id for loaded in shown] == ["held", "pending"]
    assert shown[0] == await world.load(task.task_no)
    await world.advance(task, ending=BeginUndo(FAILED))
    shown = (await world.store.load_overdue(10, PROGRESS)).past_limit
    assert [loaded.task.task_id for loaded in shown] == ["pending"]


async def test_a_holder_that_leaves_news_unseen_too_long_is_stuck(world: World, clock: TestClock) -> None:
    task = await world.held()
    clock.move(PROGRESS - 0.001)
    assert (await world.store.load_overdue(10, PROGRESS)).stuck == ()
    clock.move(0.001)
    (shown,) = (await world.store.load_overdue(10, PROGRESS)).stuck
    assert shown.task == task
    await world.advance(task)
    assert (await world.store.load_overdue(10, PROGRESS)).stuck == ()


async def test_a_free_task_with_news_is_due_not_stuck(world: World, clock: TestClock) -> None:
    await world.advance(await world.held(), opened=[step(take=True)], ending=PutDown(None))
    ((charge,),) = [loaded.steps for loaded in await world.rows()]
    await world.report(charge)
    clock.move(1e6)
    assert (await world.store.load_overdue(10, PROGRESS)).stuck == ()


# --- recovering steps
async def _expired(world: World, clock: TestClock) -> tuple[TaskRow, StepRow, int]:
    task, (charge,) = await world.running(await world.held(), "charge")
    clock.move(COMPLETE_WITHIN)
    return task, charge, await world.lead(await world.process())


async def test_an_expired_attempt_is_spent_under_a_new_fence(world: World, clock: TestClock) -> None:
    task, charge, term = await _expired(world, clock)
    answer = await world.written(world.recover_command(charge, term))
    (after,) = answer.steps
    assert (after.state, after.fence, after.attempt, after.failure_count) == (StepState.PENDING, charge.fence + 1, 2, 1)
    assert (after.in_doubt, after.locked_by, after.complete_by) == (True, None, None)
    assert (answer.task.revision, answer.task.failure_count) == (task.revision + 1, 1)
    expired, recovered = await world.last_events()
    assert (expired["type"], expired["why"], expired["term"]) == ("step.expired", "expired", term)
    assert (recovered["what"], recovered["fence"], recovered["failure_count"]) == ("retry", charge.fence + 1, 1)
    await world.refused(world.report_command(charge), "stale")


async def test_a_recovery_that_ends_the_step_wakes_the_task(world: World, clock: TestClock) -> None:
    _, charge, term = await _expired(world, clock)
    answer = await world.written(world.recover_command(charge, term, gave_up(in_doubt=True)))
    (after,) = answer.steps
    assert (after.state, after.in_doubt, after.result_number) == (StepState.FAILED, True, 1)
    assert answer.task.unseen_since == clock.at


async def test_a_recovery_under_an_old_term_changes_nothing(world: World, clock: TestClock) -> None:
    _, charge, term = await _expired(world, clock)
    for wrong in (term - 1, term + 1):
        await world.refused(world.recover_command(charge, wrong), "old_term")
    clock.move(61)
    assert await world.lead(2) == term + 1
    await world.refused(world.recover_command(charge, term), "old_term")


async def test_a_recovery_decided_from_another_fence_or_before_the_deadline_changes_nothing(
    world: World, clock: TestClock
) -> None:
    _, charge, term = await _expired(world, clock)
    await world.refused(world.recover_command(charge, term, fence=charge.fence - 1), "moved_on")
    await world.refused(world.recover_command(charge, term, fence=charge.fence + 1), "moved_on")
    await world.refused(world.recover_command(charge, term, step_no=99), "moved_on")
    await world.refused(world.recover_command(charge, term, starved=True), "moved_on")
    clock.to(Instant(clock.at - 1))
    await world.refused(world.recover_command(charge, term), "moved_on")


async def test_a_recovery_takes_effect_once_and_not_after_the_report(world: World, clock: TestClock) -> None:
    task, charge, term = await _expired(world, clock)
    await world.written(world.recover_command(charge, term))
    await world.refused(world.recover_command(charge, term), "moved_on")
    (second,) = await world.take(2)
    await world.report(second.step)
    clock.move(COMPLETE_WITHIN)
    await world.refused(world.recover_command(second.step, term), "moved_on")
    assert (await world.load(task.task_no)).steps[0].failure_count == 1


async def test_an_attempt_that_expires_after_the_undo_began_is_not_repeated(world: World, clock: TestClock) -> None:
    task, charge, term = await _expired(world, clock)
    await world.advance(task, ending=BeginUndo(FAILED))
    answer = await world.written(world.recover_command(charge, term))
    (after,) = answer.steps
    assert (after.state, after.in_doubt, answer.task.open_count) == (StepState.WITHDRAWN, True, 0)
    assert answer.task.unseen_since == clock.at


async def test_a_starved_request_fails_and_one_that_was_taken_meanwhile_does_not(
    world: World, clock: TestClock
) -> None:
    term = await world.lead(await world.process())
    _, (charge, reserve) = await world.opened(
        await world.held(), step(wait_within=2.0), step("reserve", wait_within=2.0)
    )
    starve = {"starved": True, "outcome": STARVED}
    await world.refused(world.recover_command(charge, term, **starve), "moved_on")
    clock.move(2)
    await world.take(names=("reserve",))
    await world.refused(world.recover_command(reserve, term, **starve), "moved_on")
    answer = await world.written(world.recover_command(charge, term, **starve))
    (after,) = answer.steps
    assert (after.state, after.wait_by, after.taken, after.in_doubt) == (StepState.FAILED, None, False, False)
    assert (await world.last_events())[0]["why"] == "starved"


# --- the task's own limit
def _end(task: TaskRow, term: int, ending: BeginUndo | Hold, **changes: object) -> EndByLimit:
    fields = {
        "task_no": task.task_no,
        "fence": task.fence,
        "revision": task.revision,
        "state": task.state,
        "term": term,
    }
    return EndByLimit(actor="leader", ending=ending, **(fields | changes))


async def test_past_its_limit_a_task_is_taken_from_its_holder_and_its_undo_begins(
    world: World, clock: TestClock
) -> None:
    term = await world.lead(await world.process())
    task, (charge, reserve) = await world.opened(
        await world.held(complete_within=3.0), step(take=True), step("reserve")
    )
    clock.move(3)
    answer = await world.written(_end(task, term, BeginUndo(FAILED)))
    after = answer.task
    assert (after.state, after.locked_by, after.not_before) == (TaskState.COMPENSATING, None, clock.at)
    assert (after.fence, after.revision) == (task.fence + 1, task.revision + 1)
    assert kinds(await world.last_events()) == ["task.expired", "step.withdrawn", "undo.begun", "task.released"]
    assert (await world.step(reserve.step_no)).state is StepState.WITHDRAWN
    await world.refused(world.advance_command(task), "moved_on")
    await world.report(charge)
    assert [loaded.task.task_no for loaded in await world.claim(2, workflows=())] == [task.task_no]


@pytest.mark.parametrize("ending", [BeginUndo(FAILED), Hold(FAILED)], ids=lambda e: type(e).__name__)
async def test_a_task_that_nobody_ever_claimed_ends_by_its_limit_too(
    world: World, clock: TestClock, ending: BeginUndo | Hold
) -> None:
    term = await world.lead(await world.process())
    task = await world.task(await world.submit(complete_within=3.0, delay=1.0))
    clock.move(4)
    after = (await world.written(_end(task, term, ending))).task
    assert after.state is (TaskState.COMPENSATING if isinstance(ending, BeginUndo) else TaskState.HELD)


async def test_an_end_by_limit_is_guarded_by_term_fence_revision_state_and_time(world: World, clock: TestClock) -> None:
    term = await world.lead(await world.process())
    task = await world.held(complete_within=3.0)
    unlimited = await world.held("no-limit")
    clock.move(3)
    undo = BeginUndo(FAILED)
    await world.refused(_end(task, term + 1, undo), "old_term")
    for changes in ({"fence": 2}, {"revision": 5}, {"state": TaskState.PENDING}, {"task_no": 9}):
        await world.refused(_end(task, term, undo, **changes), "moved_on")
    await world.refused(_end(unlimited, term, undo), "moved_on")
    clock.to(Instant(clock.at - 1))
    await world.refused(_end(task, term, undo), "moved_on")
    clock.move(1)
    after = (await world.written(_end(task, term, undo))).task
    await world.refused(_end(after, term, Hold(FAILED)), "moved_on")


# --- a holder that lives and does nothing
async def _stuck(world: World, clock: TestClock) -> tuple[Loaded, int]:
    term = await world.lead(await world.process())
    task, _ = await world.running(await world.held(process_no=4), "charge")
    (charge,) = (await world.load(task.task_no)).steps
    await world.report(charge)
    clock.move(PROGRESS)
    (loaded,) = (await world.store.load_overdue(10, PROGRESS)).stuck
    return loaded, term


async def test_a_stuck_task_is_freed_as_lost_and_its_attempts_go_on(world: World, clock: TestClock) -> None:
    term = await world.lead(await world.process())
    task, (charge,) = await world.running(await world.held(process_no=4), "charge")
    other = await world.opened(task, step("reserve", take=True))
    await world.report(charge)
    clock.move(PROGRESS)
    (loaded,) = (await world.store.load_overdue(10, PROGRESS)).stuck
    after = (await world.written(on_stuck(loaded, "leader", term))).task
    assert (after.locked_by, after.lost_count, after.not_before, after.fence) == (
        None,
        1,
        clock.at,
        loaded.task.fence + 1,
    )
    assert (await world.step(other[1][0].step_no)).state is StepState.RUNNING
    assert kinds(await world.last_events()) == ["task.lost", "task.released"]
    assert (await world.last_events())[1]["why"] == "stuck"


async def test_freeing_a_stuck_task_is_guarded_by_term_fence_and_no_progress_since(
    world: World, clock: TestClock
) -> None:
    loaded, term = await _stuck(world, clock)
    command = on_stuck(loaded, "leader", term)
    replace = msgspec.structs.replace
    await world.refused(replace(command, term=term + 1), "old_term")
    await world.refused(replace(command, fence=9), "moved_on")
    await world.refused(replace(command, task_no=9), "unknown")
    await world.refused(replace(command, stuck_since=later(clock(), -1)), "moved_on")
    await world.advance(loaded.task)
    await world.refused(command, "moved_on")


async def test_a_task_that_its_holder_saw_and_left_again_is_not_freed_for_the_first_time(
    world: World, clock: TestClock
) -> None:
    loaded, term = await _stuck(world, clock)
    task, (reserve,) = await world.running(loaded.task, "reserve")
    await world.report(reserve)
    await world.refused(on_stuck(loaded, "leader", term), "moved_on")
    assert (await world.task(task.task_no)).unseen_since == clock.at


async def test_commands_of_one_batch_see_what_those_before_them_did(world: World, clock: TestClock) -> None:
    task, charge, term = await _expired(world, clock)
    commands = [world.recover_command(charge, term), world.recover_command(charge, term), world.claim_command(3)]
    await world.store.submit([submission("order-2")])
    answers = await world.store.apply([*commands, world.advance_command(task)])
    assert [isinstance(answer, Refusal) for answer in answers] == [False, True, False, True]
