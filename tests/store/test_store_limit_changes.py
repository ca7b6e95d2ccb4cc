"""Changed limits of a live task and its steps, in every store: what each later write makes of them, and who lost them."""

from typing import Any

from store_world import FAILED, UNSURE, TestClock, World, retry_at, step, undo_of
from test_store_breakers import canary, find_breaker, tripped, waiting
from test_store_limits import ONE_EACH, declare
from test_store_limits import take as take_limited
from test_store_limits import waiting as waiting_under_keys

from arriero.core.supervision import on_limit_passed, read_step_policy
from arriero.model import StepRow, StepState, TaskRow, TaskState, Verb, later
from arriero.model.commands import EndByLimit, Operate
from arriero.model.moves import BeginUndo, GaveUp, PlanUndo, PutDown

MINUTE = 60.0
LAST = GaveUp(UNSURE, True)  # as one decides who knows of three attempts


def adjust(task: TaskRow, limits: str | None = None, **changes: Any) -> Operate:
    fields: dict[str, Any] = {"by": "ana", "reason": "the bank is slow", "store_id": "store", "limits": limits}
    fields |= {"task_no": task.task_no, "incarnation": task.incarnation}
    return Operate(actor="operator", verb=Verb.ADJUST, **(fields | changes))


async def attempted(world: World, failures: int, **changes: Any) -> tuple[TaskRow, StepRow]:
    """A task whose step has failed so often, and is attempted again."""
    task, (charge,) = await world.opened(await world.held(), step(take=True, **changes))
    for _ in range(failures):
        await world.report(charge, retry_at(world.clock()))
        ((charge),) = [dispatch.step for dispatch in await world.take()]
    return (await world.load(task.task_no)).task, charge


async def test_changed_limits_stand_in_the_row_and_their_old_values_in_the_history(world: World) -> None:
    task, charge = await attempted(world, 1)
    answer = await world.written(adjust(task, '{"attempts":9,"complete_within":300.0}', step=1, within=MINUTE))
    assert answer.task.complete_by == later(world.clock(), MINUTE)
    assert answer.changes[0].startswith("to be done by ")
    assert answer.changes[1:] == ("step charge: attempts 9 (3 before), complete_within 300 s (10 s before)",)
    policy = read_step_policy(await world.step(charge.step_no))
    assert (policy.supervision.attempts, policy.complete_within, policy.is_adjusted) == (9, 300.0, True)
    verb, adjusted = await world.last_events()
    assert (verb["complete_by"], verb["complete_by_before"]) == (answer.task.complete_by, None)
    assert adjusted == {
        "type": "step.adjusted",
        "step": 1,
        "limits": {"attempts": 9, "complete_within": 300.0},
        "before": {"attempts": 3, "complete_within": 10.0},
    }


async def test_the_answer_says_which_open_steps_stayed_as_they_were_and_why(world: World) -> None:
    task, _ = await attempted(world, 0)
    answer = await world.written(adjust(task, '{"attempts":9,"delay":0.0}'))
    assert answer.changes == (
        "unchanged: delay: step charge is being attempted now: its next attempt is not due yet",
        "step charge: attempts 9 (3 before)",
    )


async def test_a_report_by_the_old_limits_is_taken_by_the_new_ones(world: World) -> None:
    task, charge = await attempted(world, 2)
    await world.written(adjust(task, '{"attempts":9}'))
    await world.report(charge, LAST)
    assert ((again := await world.step(charge.step_no)).state, again.failure_count) == (StepState.PENDING, 3)


async def test_a_retry_by_the_old_limits_ends_the_step_by_fewer_attempts(world: World) -> None:
    task, charge = await attempted(world, 1)
    await world.written(adjust(task, '{"attempts":2}'))
    await world.report(charge, retry_at(world.clock(), in_doubt=True))
    assert ((ended := await world.step(charge.step_no)).state, ended.in_doubt) == (StepState.FAILED, True)
    assert (await world.load(task.task_no)).task.not_before is not None  # its code is to be given the failure


async def test_a_holder_who_knows_the_old_limits_gives_its_code_no_failure(world: World) -> None:
    """Its task was freed by the verb; the next holder is offered the same report, and may not deliver it either."""
    task, charge = await attempted(world, 2)
    await world.refused(world.advance_command(await adjusted(world, task), [world.reported(charge, LAST)]), "moved_on")
    (loaded,) = await world.claim()
    await world.refused(world.advance_command(loaded.task, [world.reported(charge, LAST)]), "adjusted")
    await world.report(charge, LAST)
    assert (await world.step(charge.step_no)).state is StepState.PENDING


async def adjusted(world: World, task: TaskRow) -> TaskRow:
    """The task as its holder knows it, after an operator gave its steps nine attempts."""
    await world.written(adjust(task, '{"attempts":9}'))
    return task


async def test_a_supervisor_who_decided_by_the_old_limits_ends_no_step(world: World, clock: TestClock) -> None:
    term = await world.lead(await world.process())
    task, charge = await attempted(world, 2)
    clock.move(11)
    decided = world.recover_command(charge, term, LAST)
    await world.written(adjust(task, '{"attempts":9}'))
    await world.written(decided)
    assert (await world.step(charge.step_no)).state is StepState.PENDING


async def test_the_next_attempt_has_its_new_time_and_the_running_one_keeps_its_own(world: World) -> None:
    task, charge = await attempted(world, 0)
    await world.written(adjust(task, '{"complete_within":300.0}'))
    assert (await world.step(charge.step_no)).complete_by == charge.complete_by
    await world.report(charge, retry_at(world.clock()))
    (dispatch,) = await world.take()
    assert dispatch.step.complete_by == later(world.clock(), 300)


async def test_a_request_that_waits_is_taken_when_an_operator_says(world: World, clock: TestClock) -> None:
    task, charge = await attempted(world, 0)
    await world.report(charge, retry_at(later(clock(), 3_600)))
    assert await world.take() == []
    await world.written(adjust(task, '{"delay":0.0}', step=1))
    assert [dispatch.step.attempt for dispatch in await world.take()] == [2]
    await world.report(await world.step(charge.step_no), retry_at(clock()))
    await world.written(adjust((await world.load(task.task_no)).task, '{"delay":60.0}'))
    clock.move(59)
    assert await world.take() == []
    clock.move(1)
    assert [dispatch.step.attempt for dispatch in await world.take()] == [3]


async def test_a_request_that_nobody_takes_waits_by_its_new_limit(world: World, clock: TestClock) -> None:
    task, (charge,) = await world.opened(await world.held(), step(wait_within=5.0))
    await world.written(adjust(task, '{"wait_within":50.0}'))
    clock.move(49)
    assert (await world.store.load_overdue(10, 1.0)).starved == ()
    clock.move(1)
    assert [each.step_no for each in (await world.store.load_overdue(10, 1.0)).starved] == [charge.step_no]


async def test_a_deadline_may_be_earlier_and_holds_then(world: World, clock: TestClock) -> None:
    term = await world.lead(await world.process())
    task = await world.held(complete_within=10 * MINUTE)
    await world.written(adjust(task, within=MINUTE))
    clock.move(MINUTE)
    (loaded,) = (await world.store.load_overdue(10, 10 * MINUTE)).past_limit
    fields = {name: getattr(loaded.task, name) for name in ("task_no", "fence", "revision", "state")}
    await world.written(EndByLimit(actor="leader", ending=on_limit_passed(loaded), term=term, **fields))
    assert (await world.load(task.task_no)).task.state is not TaskState.PROCESSING


async def test_of_an_undo_each_compensation_that_is_not_done_is_changed(world: World) -> None:
    task, steps = await world.running(await world.held(), "charge", "reserve")
    task = (await world.advance(task, list(map(world.reported, steps)), ending=BeginUndo(FAILED))).task
    plan = PlanUndo(FAILED, (undo_of(steps[1], take=True), undo_of(steps[0])))
    task = (await world.advance(task, ending=plan)).task
    await world.written(adjust(task, '{"attempts":9}'))
    rows = (await world.load(task.task_no)).steps
    assert [read_step_policy(row).supervision.attempts for row in rows] == [3, 3, 9, 9]


async def test_of_two_operators_the_second_finds_what_the_first_has_changed(world: World) -> None:
    task, _ = await attempted(world, 0)
    await world.written(adjust(task, '{"attempts":9}'))
    await world.written(adjust(task, '{"attempts":5}', by="ben"))
    assert (await world.last_events())[1]["before"] == {"attempts": 9}
    await world.refused(adjust(task, '{"attempts":5}', by="cy"), "not_allowed")


async def test_a_task_that_nobody_holds_stays_at_rest(world: World) -> None:
    task, charge = await attempted(world, 0)
    await world.report(charge, retry_at(later(world.clock(), 3_600)))
    task = (await world.load(task.task_no)).task
    task = (await world.advance(task, ending=PutDown(None))).task
    after = (await world.written(adjust(task, '{"attempts":9}'))).task
    assert (after.not_before, after.locked_by, after.state) == (None, None, TaskState.PROCESSING)


# --- the next attempt, and a breaker
async def test_no_delay_lets_a_request_past_an_open_breaker_and_a_later_one_holds_after_it_closes(
    world: World, clock: TestClock
) -> None:
    task = await waiting(world, "a")
    await tripped(world)
    before = await find_breaker(world)
    await world.written(adjust(task, '{"delay":0.0}', step=1))
    assert await world.take() == []
    assert await find_breaker(world) == before
    clock.move(10)  # its cool-off is over
    await world.written(adjust((await world.load(task.task_no)).task, '{"delay":60.0}', step=1))
    assert await world.take() == [], "no canary goes before its time"
    clock.move(60)
    (dispatch,) = await world.take()
    assert (dispatch.step.canary, dispatch.step.failure_count) == ((await find_breaker(world)).fence, 0)


async def test_what_failed_in_an_outage_may_be_brought_forward_and_is_charged_nothing(
    world: World, clock: TestClock
) -> None:
    await waiting(world, "a")
    charge = await canary(world)
    await world.report(charge, retry_at(later(clock(), 3_600), in_doubt=True))
    failed = await world.step(charge.step_no)
    assert failed.failure_count == 0
    task = (await world.load(charge.task_no)).task
    await world.written(adjust(task, '{"delay":0.0}', step=1))
    clock.move(3_599)
    assert await world.take() == [], "its breaker waits as long as the service asked for"
    clock.move(1)
    (dispatch,) = await world.take()
    assert (dispatch.step.step_no, dispatch.step.attempt, dispatch.step.failure_count) == (charge.step_no, 2, 0)
    assert dispatch.step.canary is not None


async def test_a_canary_under_way_keeps_its_time_when_the_delay_of_all_open_steps_changes(world: World) -> None:
    await waiting(world, "a", "b")
    charge = await canary(world)
    answer = await world.written(adjust((await world.load(charge.task_no)).task, '{"delay":5.0}'))
    assert "unchanged: step charge[a] is being attempted now: its next attempt is not due yet" in answer.changes
    assert await world.step(charge.step_no) == charge


async def test_a_request_under_the_key_of_a_limit_begins_when_an_operator_says(world: World, clock: TestClock) -> None:
    await declare(world, ONE_EACH)
    task = await waiting_under_keys(world, 1, "shoes")
    (charge,) = await take_limited(world)
    await world.report(charge, retry_at(later(clock(), 3_600)))
    assert await take_limited(world) == []
    await world.written(adjust((await world.load(task.task_no)).task, '{"delay":0.0}', step=1))
    assert len(await take_limited(world)) == 1
