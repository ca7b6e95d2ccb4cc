"""The Scheduler's write: all of it or nothing, only while the task is held as it was decided from."""

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
    timer,
    undo_of,
)

from arriero.core import transitions
from arriero.core.undo import list_open_compensations
from arriero.model import Instant, StepState, TaskRow, TaskState
from arriero.model.failures import TaskFailure
from arriero.model.moves import (
    BeginUndo,
    Compensate,
    Ending,
    Fired,
    Hold,
    Keep,
    NextUndo,
    PlanUndo,
    Process,
    PutDown,
    Succeeded,
)


# --- guards
@pytest.mark.parametrize(
    "changes",
    [
        {"fence": 2},
        {"fence": 0},
        {"revision": 0},
        {"revision": 2},
        {"process_no": 2},
        {"state": TaskState.PENDING},
        {"state": TaskState.COMPENSATING},
    ],
    ids=str,
)
@pytest.mark.parametrize(
    "ending", [Keep(), PutDown(None), Process("1"), BeginUndo(FAILED), Hold(FAILED)], ids=lambda e: type(e).__name__
)
async def test_an_advance_decided_from_another_state_of_the_task_changes_nothing(
    world: World, changes: dict[str, int], ending: Ending
) -> None:
    task = await world.held()
    await world.refused(world.advance_command(task, ending=ending, **changes), "moved_on")
    await world.advance(task, ending=ending)


async def test_an_advance_of_a_task_that_is_not_there_is_refused_as_unknown(world: World) -> None:
    task = await world.held()
    await world.refused(world.advance_command(task, task_no=99), "unknown")


async def test_an_advance_sent_twice_counts_once(world: World) -> None:
    task = await world.held()
    command = world.advance_command(task, opened=[step()])
    await world.written(command)
    await world.refused(command, "moved_on")
    assert len((await world.load(task.task_no)).steps) == 1


async def test_a_report_by_others_makes_the_holder_decide_again(world: World) -> None:
    task, (charge,) = await world.running(await world.held(), "charge")
    await world.report(charge, process_no=2)
    await world.refused(world.advance_command(task, ending=BeginUndo(FAILED)), "moved_on")


async def test_a_holder_that_was_freed_changes_nothing(world: World) -> None:
    process_no = await world.process()
    task = await world.held(process_no=process_no)
    await world.lose(process_no)
    await world.written(world.free_command(task))
    await world.refused(world.advance_command(task, opened=[step()]), "moved_on")


# --- steps
async def test_steps_are_numbered_in_the_order_they_were_opened(world: World) -> None:
    task = await world.held()
    task, first = await world.opened(
        task, step("charge"), timer(NOON + 5), step("reserve", pivot=True, compensation=None)
    )
    task, second = await world.opened(task, step("ship", effect_free=True))
    assert [one.ordinal for one in first + second] == [1, 2, 3, 4]
    assert (task.opened_count, task.open_count, task.result_count) == (4, 3, 0)
    assert [one.state for one in first] == [StepState.PENDING] * 3
    assert (first[0].not_before, first[1].not_before, first[0].opened_at) == (NOON, NOON + 5, NOON)
    assert (first[2].pivot, first[2].compensation, second[0].effect_free) == (True, None, True)
    charge, sleep, reserve = await _events_of(world, "step.opened", of_link=-2)
    assert (charge["step"], charge["name"], charge["kind"], charge["idempotency_key"]) == (
        1,
        "charge",
        "step",
        "charge#1",
    )
    assert (charge["undoable"], "pivot" in charge, reserve["pivot"]) == (True, False, True)
    assert sleep == {
        "type": "step.opened",
        "step": 2,
        "kind": "timer",
        "name": "sleep",
        "key": "#1",
        "fire_at": NOON + 5,
    }


async def _events_of(world: World, kind: str, of_link: int = -1, task_no: int = 1) -> list[dict]:
    return [event for event in (await world.links(task_no))[of_link] if event["type"] == kind]


async def test_a_step_may_be_opened_and_begun_in_one_commit(world: World) -> None:
    answer = await world.advance(await world.held(), opened=[step(take=True), step("reserve")])
    charge, reserve = answer.steps
    assert (charge.state, charge.fence, charge.locked_by) == (StepState.RUNNING, 1, 1)
    assert charge.complete_by == NOON + COMPLETE_WITHIN * 1e6
    assert reserve.state is StepState.PENDING
    (dispatch,) = answer.dispatches
    assert dispatch.step == charge
    assert kinds(await world.last_events()) == ["step.opened", "step.dispatched", "step.opened"]


async def test_wait_within_is_counted_from_the_opening(world: World) -> None:
    _, (charge,) = await world.opened(await world.held(), step(wait_within=2.5))
    assert charge.wait_by == NOON + 2_500_000


async def test_results_are_numbered_in_the_order_they_are_delivered(world: World, clock: TestClock) -> None:
    task, (charge, reserve, ship) = await world.running(await world.held(), "charge", "reserve", "ship")
    delivered_at = clock.at
    clock.move(1)
    delivered = [
        world.reported(ship, Succeeded('"parcel"'), delivered_at=Instant(delivered_at)),
        world.reported(charge, gave_up(in_doubt=True)),
        world.reported(reserve, retry_at(clock.at + 9)),
    ]
    answer = await world.advance(task, delivered)
    ship, charge, reserve = answer.steps
    assert (ship.state, ship.result, ship.result_number, ship.delivered_at) == (
        StepState.COMPLETED,
        '"parcel"',
        1,
        delivered_at,
    )
    assert (ship.locked_by, ship.complete_by, ship.finished_at) == (None, None, clock.at)
    assert (charge.state, charge.result, charge.result_number, charge.in_doubt) == (StepState.FAILED, None, 2, True)
    assert msgspec.json.decode(charge.failure or "")["code"] == "declined"
    assert (reserve.state, reserve.attempt, reserve.not_before, reserve.result_number) == (
        StepState.PENDING,
        2,
        clock.at + 9,
        None,
    )
    counts = (answer.task.result_count, answer.task.open_count, answer.task.failure_count)
    assert counts == (2, 1, 2)
    assert (charge.failure_count, reserve.failure_count, ship.failure_count) == (1, 1, 0)
    events = await world.last_events()
    recorded, failed, again = ("step.recorded", "step.failed", "recover.applied")
    assert kinds(events) == ["step.report", recorded, "step.report", failed, "step.report", again]
    assert {event["verdict"] for event in events if event["type"] == "step.report"} == {"applied"}


async def test_a_report_and_the_request_of_the_next_step_share_a_commit(world: World) -> None:
    task, (charge,) = await world.running(await world.held(), "charge")
    before = len(await world.links())
    await world.advance(task, [world.reported(charge)], [step("reserve", take=True)])
    assert len(await world.links()) == before + 1


@pytest.mark.parametrize(
    ("verdict", "fence_moved", "ended", "seconds"),
    [("late", 0, False, COMPLETE_WITHIN), ("stale", 1, False, 0.0), ("duplicate", 0, True, 0.0)],
)
async def test_an_advance_with_a_report_that_no_longer_counts_writes_only_the_verdict(
    world: World, clock: TestClock, verdict: str, fence_moved: int, ended: bool, seconds: float
) -> None:
    task, (charge, reserve) = await world.running(await world.held(), "charge", "reserve")
    if ended:
        task = (await world.advance(task, [world.reported(charge)])).task
    clock.move(seconds)
    bad = world.reported(charge, fence=charge.fence + fence_moved)
    delivered = [bad] if verdict == "late" else [world.reported(reserve), bad]
    await world.refused(world.advance_command(task, delivered, [step("ship")], Keep()), verdict)
    (event,) = await world.last_events()
    assert (event["type"], event["step"], event["verdict"]) == ("step.report", 1, verdict)


async def test_a_report_a_moment_before_the_deadline_counts(world: World, clock: TestClock) -> None:
    task, (charge,) = await world.running(await world.held(), "charge")
    clock.to(Instant(NOON + int(COMPLETE_WITHIN * 1e6) - 1))
    await world.advance(task, [world.reported(charge)])


async def test_a_report_of_a_step_that_is_not_there_is_refused_as_unknown(world: World) -> None:
    task, (charge,) = await world.running(await world.held(), "charge")
    await world.refused(world.advance_command(task, [world.reported(charge, step_no=charge.step_no + 5)]), "unknown")


async def test_a_timer_fires_once_and_not_before_its_time(world: World, clock: TestClock) -> None:
    task, (sleep,) = await world.opened(await world.held(), timer(NOON + 1_000_000))
    fired = [Fired(sleep.step_no, Instant(NOON + 1_000_000))]
    await world.refused(world.advance_command(task, fired), "moved_on")
    clock.move(1)
    answer = await world.advance(task, fired, [step()])
    kept = answer.steps[0]
    assert (kept.state, kept.result, kept.result_number, answer.task.result_count) == (
        StepState.COMPLETED,
        "null",
        1,
        1,
    )
    assert kinds(await world.last_events()) == ["timer.fired", "step.opened"]
    await world.refused(world.advance_command(answer.task, fired), "moved_on")


async def test_a_task_that_opens_too_many_steps_is_held_and_opens_none_of_them(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transitions, "STEPS_PER_TASK_MAX", 3)
    task, _ = await world.opened(await world.held(), step("charge", "#1"), step("charge", "#2"))
    answer = await world.advance(task, opened=[step("charge", "#3", take=True), step("charge", "#4")])
    assert (answer.task.state, answer.dispatches) == (TaskState.HELD, ())
    assert "too_many_steps" in (answer.task.failure or "")
    steps = (await world.load(task.task_no)).steps
    assert [one.state for one in steps] == [StepState.WITHDRAWN] * 2


# --- where it leaves the task
async def test_keep_says_that_the_news_was_seen(world: World) -> None:
    task = await world.held()
    assert await world.store.load_news(1) == [(task.task_no, task.revision)]
    task = (await world.advance(task)).task
    assert (task.unseen_since, task.locked_by, task.fence) == (None, 1, 1)
    assert await world.store.load_news(1) == []


async def test_process_ends_the_task_with_its_output_and_drops_its_timers(world: World) -> None:
    task, (sleep, charge) = await world.opened(await world.held(), timer(NOON + 10), step(take=True))
    answer = await world.advance(task, [world.reported(charge)], ending=Process('"receipt"'))
    ended = answer.task
    assert (ended.state, ended.output, ended.ended_at) == (TaskState.PROCESSED, '"receipt"', NOON)
    assert (ended.locked_by, ended.not_before, ended.unseen_since, ended.fence) == (None, None, None, task.fence + 1)
    assert (await world.step(sleep.step_no)).state is StepState.WITHDRAWN
    (event,) = await _events_of(world, "task.terminal")
    assert (event["state"], event["fence"]) == ("processed", ended.fence)


_NO_PLAN = pytest.mark.odd_history("I18", "I28", "I30", "I31", reason="the plan opens the forward step anew")
_NO_UNDO = pytest.mark.odd_history("I30", reason="what was done is not undone")


@pytest.mark.parametrize(
    "ending",
    [
        Process("1"),
        pytest.param(PlanUndo(FAILED, (step(),)), marks=_NO_PLAN),
        pytest.param(Compensate(FAILED), marks=_NO_UNDO),
    ],
    ids=lambda e: type(e).__name__,
)
async def test_nothing_ends_or_is_planned_while_a_step_is_open(world: World, ending: Ending) -> None:
    task = await world.held()
    await world.refused(world.advance_command(task, opened=[step()], ending=ending), "moved_on")
    task, (charge,) = await world.running(task, "charge")
    await world.refused(world.advance_command(task, ending=ending), "moved_on")
    await world.refused(
        world.advance_command(task, [world.reported(charge, retry_at(NOON))], ending=ending), "moved_on"
    )
    await world.advance(task, [world.reported(charge)], ending=ending)


async def test_when_an_undo_begins_requests_and_timers_are_withdrawn_and_attempts_go_on(world: World) -> None:
    task, steps = await world.opened(await world.held(), step(take=True), step("reserve"), timer(NOON + 9))
    charge, reserve, sleep = steps
    answer = await world.advance(task, opened=[step("ship")], ending=BeginUndo(FAILED))
    assert (answer.task.state, answer.task.locked_by, answer.task.open_count) == (TaskState.COMPENSATING, 1, 1)
    loaded = await world.load(task.task_no)
    states = [one.state for one in loaded.steps]
    assert states == [StepState.RUNNING, StepState.WITHDRAWN, StepState.WITHDRAWN, StepState.WITHDRAWN]
    assert msgspec.json.decode(answer.task.failure or "", type=TaskFailure) == FAILED
    assert await world.take() == []
    await world.advance(answer.task, [world.reported(charge)])
    assert (await world.step(charge.step_no)).state is StepState.COMPLETED
    assert reserve.state is sleep.state is StepState.PENDING


async def test_an_attempt_that_fails_after_the_undo_began_is_not_repeated_and_its_doubt_stays(world: World) -> None:
    task, (charge,) = await world.running(await world.held(), "charge")
    task = (await world.advance(task, ending=BeginUndo(FAILED))).task
    answer = await world.advance(task, [world.reported(charge, retry_at(NOON, in_doubt=True))])
    (after,) = answer.steps
    assert (after.state, after.in_doubt, after.locked_by, answer.task.open_count) == (
        StepState.WITHDRAWN,
        True,
        None,
        0,
    )


async def _undoing(world: World) -> tuple[TaskRow, list[int]]:
    """A task with two completed steps whose undo is planned; the numbers of the two compensations."""
    task, steps = await world.running(await world.held(), "charge", "reserve")
    task = (await world.advance(task, [world.reported(one) for one in steps])).task
    planned = (undo_of(steps[1], take=True), undo_of(steps[0]))
    answer = await world.advance(task, ending=PlanUndo(FAILED, planned))
    assert answer.dispatches[0].step.name == "reserve"
    return answer.task, [one.step_no for one in answer.steps if one.undoes]


async def test_the_undo_plan_stands_in_its_order_and_only_its_first_action_may_be_taken(world: World) -> None:
    task, (first, second) = await _undoing(world)
    assert (task.state, task.open_count) == (TaskState.COMPENSATING, 1)
    assert (await world.step(first)).state is StepState.RUNNING
    assert (await world.step(second)).state is StepState.PLANNED
    events = await world.last_events()
    (planned,) = [event for event in events if event["type"] == "undo.planned"]
    assert planned["steps"] == [3, 4]
    undoes = [(e["step"], e["undoes"], e.get("planned", False)) for e in events if e["type"] == "step.opened"]
    assert undoes == [(3, 2, False), (4, 1, True)]
    assert kinds(events).index("undo.planned") < kinds(events).index("compensation.dispatched")
    assert await world.take() == []


async def test_compensations_follow_one_another_and_the_last_one_ends_the_undo(world: World, clock: TestClock) -> None:
    task, (first, second) = await _undoing(world)
    answer = await world.advance(task, [world.reported(await world.step(first), Succeeded("null"))])
    clock.move(1)
    answer = await world.advance(answer.task, ending=NextUndo(second, False, COMPLETE_WITHIN, wait_within=4.0))
    reached = await world.step(second)
    assert (reached.state, reached.not_before, reached.wait_by) == (StepState.PENDING, clock.at, clock.at + 4_000_000)
    await world.refused(world.advance_command(answer.task, ending=Compensate(FAILED)), "moved_on")
    (dispatch,) = await world.take(1)
    answer = await world.advance(await world.task(1), [world.reported(dispatch.step, Succeeded("null"))])
    ended = (await world.advance(answer.task, ending=Compensate(FAILED))).task
    assert (ended.state, ended.locked_by, ended.ended_at) == (TaskState.COMPENSATED, None, clock.at)
    assert list_open_compensations((await world.load(1)).steps) == ()


async def test_the_next_compensation_may_be_begun_at_once(world: World) -> None:
    task, (first, second) = await _undoing(world)
    task = (await world.advance(task, [world.reported(await world.step(first))])).task
    answer = await world.advance(task, ending=NextUndo(second, True, COMPLETE_WITHIN))
    (dispatch,) = answer.dispatches
    assert (dispatch.step.step_no, dispatch.step.state) == (second, StepState.RUNNING)


async def test_a_compensation_is_repeated_while_the_undo_goes_on(world: World, clock: TestClock) -> None:
    task, (first, _) = await _undoing(world)
    await world.advance(task, [world.reported(await world.step(first), retry_at(clock.at, in_doubt=True))])
    (dispatch,) = await world.take()
    assert (dispatch.step.step_no, dispatch.step.attempt, dispatch.step.in_doubt) == (first, 2, True)


async def test_with_nothing_to_undo_the_task_is_compensated_at_once(world: World) -> None:
    task, (charge,) = await world.running(await world.held(), "charge")
    ended = (await world.advance(task, [world.reported(charge, gave_up())], ending=Compensate(FAILED))).task
    assert ended.state is TaskState.COMPENSATED
    assert [k for k in kinds(await world.last_events()) if k.startswith(("undo", "task"))] == [
        "undo.begun",
        "task.terminal",
    ]


@pytest.mark.odd_history("I28", reason="the plan is made while an attempt runs, to see both kinds of steps")
async def test_a_held_task_withdraws_its_requests_lists_its_plan_and_opens_one_alert(world: World) -> None:
    task, (charge, reserve) = await world.opened(await world.held(), step(take=True), step("reserve"))
    failure = TaskFailure("in_doubt", "charge may have happened", "charge", "in_doubt")
    answer = await world.advance(task, opened=[step("ship")], ending=Hold(failure, (undo_of(charge),)))
    ended = answer.task
    assert (ended.state, ended.locked_by, ended.not_before, ended.ended_at) == (TaskState.HELD, None, None, NOON)
    states = [one.state for one in (await world.load(task.task_no)).steps]
    assert states == [StepState.RUNNING, StepState.WITHDRAWN, StepState.WITHDRAWN, StepState.PLANNED]
    assert [e["cause"] for e in await _events_of(world, "alert.opened")] == ["in_doubt"]
    assert reserve.ordinal == 2
    (told,) = await world.store.load_ended([task.task_no])
    assert (told.task, told.open_compensations) == (ended, ("charge",))


async def test_an_attempt_that_outlives_the_hold_is_still_recorded_and_moves_nothing(world: World) -> None:
    task, (charge, reserve) = await world.running(await world.held(), "charge", "reserve")
    ended = (await world.advance(task, ending=Hold(FAILED))).task
    await world.report(charge)
    await world.report(reserve, retry_at(NOON, in_doubt=True))
    loaded = await world.load(task.task_no)
    assert [one.state for one in loaded.steps] == [StepState.COMPLETED, StepState.WITHDRAWN]
    assert loaded.steps[1].in_doubt
    assert (loaded.task.state, loaded.task.fence, loaded.task.not_before) == (TaskState.HELD, ended.fence, None)
    assert (loaded.task.unseen_since, loaded.task.open_count) == (None, 0)


async def test_a_compensation_under_way_when_its_task_is_held_stays_open(world: World) -> None:
    task, (first, second) = await _undoing(world)
    running = await world.step(first)
    await world.advance(task, ending=Hold(FAILED))
    await world.report(running, retry_at(NOON, in_doubt=True))
    parked = await world.step(first)
    assert (parked.state, parked.in_doubt, parked.finished_at) == (StepState.PLANNED, True, None)
    (told,) = await world.store.load_ended([task.task_no])
    assert told.open_compensations == ("reserve", "charge")
    assert (await world.step(second)).state is StepState.PLANNED


async def test_a_compensation_that_waits_when_its_task_is_held_is_parked(world: World) -> None:
    task, (first, second) = await _undoing(world)
    task = (await world.advance(task, [world.reported(await world.step(first))])).task
    task = (await world.advance(task, ending=NextUndo(second, False, COMPLETE_WITHIN))).task
    await world.advance(task, ending=Hold(FAILED))
    assert (await world.step(second)).state is StepState.PLANNED
    assert await world.take() == []


async def test_an_undo_that_is_put_down_with_nothing_open_is_due_at_once(world: World, clock: TestClock) -> None:
    """Nothing is open whose end could wake it: it would sleep for ever."""
    task, (charge,) = await world.running(await world.held(), "charge")
    task = (await world.advance(task, ending=BeginUndo(FAILED))).task
    task = (await world.advance(task, [world.reported(charge)])).task
    clock.move(5)
    put_down = (await world.advance(task, ending=PutDown(None))).task
    assert (put_down.locked_by, put_down.not_before) == (None, clock.at)
    assert await world.claimed_ids() == ["order-1"]


async def test_an_undo_that_is_put_down_while_a_compensation_waits_is_woken_by_its_end(
    world: World, clock: TestClock
) -> None:
    task, (charge,) = await world.running(await world.held(), "charge")
    task = (await world.advance(task, [world.reported(charge)])).task
    task = (await world.advance(task, ending=PlanUndo(FAILED, (undo_of(charge),)))).task
    assert (await world.advance(task, ending=PutDown(None))).task.not_before is None
    assert await world.claim() == []
    (dispatch,) = await world.take()
    clock.move(5)
    assert (await world.report(dispatch.step)).task.not_before == clock.at
