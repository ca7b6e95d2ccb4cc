"""What Agents outside of Python need of a store: attempts that go back unbegun, a secret for capabilities, a list of attempts."""

from typing import Any

import pytest
from store_world import COMPLETE_WITHIN, NOON, TestClock, World, kinds, step

from arriero.core.lease import on_process_lost
from arriero.core.undo import decide_next_undo
from arriero.model import Instant, StepRow, StepState, TaskRow, Verb, later
from arriero.model.answers import AttemptApplied
from arriero.model.commands import BeginTry, DeliverAttempt, ExtendAttempt, FreeTask, Operate, ReleaseAttempt
from arriero.model.failures import StepFailure, TaskFailure
from arriero.model.moves import BeginUndo, Compensate, GaveUp, PlanUndo, RetryAsked
from arriero.store.contract import CAPABILITY_SECRET, HeldAttempt


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


def delivery(of: StepRow, process_no: int = 1) -> DeliverAttempt:
    return DeliverAttempt(actor="gateway", process_no=process_no, step_no=of.step_no, fence=of.fence)


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


async def test_attempts_under_way_are_listed_with_their_deadlines_whoever_holds_them(world: World) -> None:
    task, (charge,) = await world.running(await world.held(), "charge")
    _, (reserve, _) = await world.opened(task, step("reserve", take=True), step("ship"))
    by = later(Instant(NOON), COMPLETE_WITHIN)
    wanted = [HeldAttempt(charge.step_no, 1, by), HeldAttempt(reserve.step_no, 1, by)]
    await world.apply(delivery(charge))
    others = [one.step_no for one in (await world.load(task.task_no)).steps if one.state is not StepState.RUNNING]
    assert await world.store.list_running_attempts([charge.step_no, *others, reserve.step_no, 99 << 20]) == wanted
    assert await world.store.list_running_attempts([]) == []


async def test_a_secret_is_random_and_stays_the_same(world: World) -> None:
    secret = await world.store.read_secret(CAPABILITY_SECRET)
    assert len(secret) == 32
    assert await world.store.read_secret(CAPABILITY_SECRET) == secret
    assert await world.store.read_secret("another") != secret


# --- attempts that programs hold
async def held_by_program(world: World, **options: Any) -> tuple[TaskRow, StepRow]:
    task = await world.held()
    _, (charge,) = await world.opened(task, step("charge", take=True, **options))
    assert isinstance(await world.apply(delivery(charge)), AttemptApplied)
    delivered = await world.step(charge.step_no)
    assert (delivered.state, delivered.locked_by, delivered.fence) == (StepState.RUNNING, None, charge.fence)
    return (await world.load(task.task_no)).task, delivered


def verb(task: TaskRow, asked: Verb, **more: Any) -> Operate:
    fields: dict[str, Any] = {"verb": asked, "task_no": task.task_no, "incarnation": task.incarnation}
    return Operate(actor="p", by="Ana", reason="it takes too long", **(fields | more))


async def test_an_attempt_is_delivered_once_by_the_process_that_holds_it(world: World, clock: TestClock) -> None:
    charge = await running(world)
    await world.refused(delivery(charge, process_no=2), "moved_on")
    for _ in range(2):
        assert isinstance(await world.apply(delivery(charge)), AttemptApplied)
    assert await world.last_events() == [{"type": "attempt.delivered", "step": 1, "fence": charge.fence}]
    await world.report(charge)
    await world.refused(delivery(charge), "moved_on")


async def test_an_attempt_whose_time_is_over_is_not_delivered(world: World, clock: TestClock) -> None:
    charge = await running(world)
    clock.to(charge.complete_by)
    await world.refused(delivery(charge), "late")


async def test_the_loss_of_a_process_leaves_the_attempt_with_its_program(world: World) -> None:
    task, charge = await held_by_program(world)
    await world.store.retire(1, by="p2", known_dead=True)
    held = await world.store.load_held(1, 10)
    commands = on_process_lost(held, 1, "p2")
    assert [command.steps for command in commands] == [()]
    stale = FreeTask(
        actor="p2", task_no=task.task_no, fence=None, steps=((charge.step_no, charge.fence),), lost_by=1, stuck_since=None,
        charged=True, hold=None,
    )  # fmt: skip
    await world.refused(stale, "moved_on")  # read before the delivery
    for command in commands:
        await world.apply(command)
    assert await world.step(charge.step_no) == charge
    assert (await world.load(task.task_no)).task.lost_count == 0
    await world.report(charge, process_no=2)
    assert (await world.step(charge.step_no)).state is StepState.COMPLETED


async def test_the_program_may_ask_for_more_time_by_way_of_every_process(world: World) -> None:
    _, charge = await held_by_program(world)
    assert charge.complete_by is not None
    latest = later(charge.complete_by, 100)
    extension = ExtendAttempt(
        actor="p2", process_no=2, step_no=charge.step_no, fence=charge.fence, seconds=50.0, latest=latest
    )
    assert isinstance(await world.apply(extension), AttemptApplied)
    after = await world.step(charge.step_no)
    assert after.complete_by is not None and after.complete_by > charge.complete_by


async def test_cancel_ends_what_a_program_holds_and_the_undo_does_not_wait(world: World) -> None:
    task, charge = await held_by_program(world)
    await world.written(verb(task, Verb.CANCEL))
    after = await world.step(charge.step_no)
    assert (after.state, after.fence, after.in_doubt, after.complete_by) == (
        StepState.WITHDRAWN,
        charge.fence + 1,
        True,
        None,
    )
    assert kinds(await world.last_events()) == [
        "operator.action",
        "attempt.revoked",
        "step.withdrawn",
        "undo.begun",
    ]
    await world.refused(world.report_command(charge), "stale")
    loaded = await world.load(task.task_no)
    assert loaded.task.open_count == 0
    plan = decide_next_undo(loaded, world.store.store_id)
    assert isinstance(plan, PlanUndo)  # at once, with the step in doubt
    assert [one.undoes for one in plan.planned] == [charge.step_no]


async def test_cancel_waits_for_a_pivot_that_a_program_holds(world: World) -> None:
    task, charge = await held_by_program(world, pivot=True)
    await world.written(verb(task, Verb.CANCEL))
    assert await world.step(charge.step_no) == charge
    await world.report(charge)


@pytest.mark.parametrize("asked", [Verb.CANCEL, Verb.COMPENSATE])
async def test_a_request_that_is_delivered_after_its_task_was_cancelled_ends_with_that(
    world: World, asked: Verb
) -> None:
    task, (charge,) = await world.running(await world.held(), "charge")
    await world.written(verb(task, asked))
    assert (await world.step(charge.step_no)).state is StepState.RUNNING  # a process carries it out
    await world.written(delivery(charge))
    after = await world.step(charge.step_no)
    assert (after.state, after.in_doubt, after.fence) == (StepState.WITHDRAWN, True, charge.fence + 1)
    assert kinds(await world.last_events()) == ["attempt.delivered", "attempt.revoked", "step.withdrawn"]
    woken = (await world.load(task.task_no)).task
    assert woken.not_before is not None and woken.open_count == 0


async def test_an_undo_that_no_person_began_waits_for_the_program(world: World) -> None:
    task, (charge,) = await world.running(await world.held(), "charge")
    await world.advance(task, ending=BeginUndo(TaskFailure("refused", "no")))
    assert isinstance(await world.apply(delivery(charge)), AttemptApplied)
    assert (await world.step(charge.step_no)).state is StepState.RUNNING


async def test_a_person_may_say_that_an_attempt_did_not_happen_which_a_program_holds(world: World) -> None:
    task, charge = await held_by_program(world)
    await world.written(verb(task, Verb.ANSWER, step=1, did_not_happen=True))
    after = await world.step(charge.step_no)
    assert (after.state, after.in_doubt, after.attempt) == (StepState.PENDING, False, 1)
    assert kinds(await world.last_events()) == ["operator.action", "attempt.revoked", "step.answered"]
    await world.refused(world.report_command(charge), "stale")
    (again,) = await world.take(2)
    await world.report(again.step, process_no=2)


async def test_such_an_answer_to_a_task_that_is_undone_lets_its_undo_go_on(world: World) -> None:
    task, charge = await held_by_program(world)
    undone = await world.advance(task, ending=BeginUndo(TaskFailure("refused", "no")))
    await world.written(verb(undone.task, Verb.ANSWER, step=1, did_not_happen=True))
    after = await world.step(charge.step_no)
    assert (after.state, after.in_doubt) == (StepState.WITHDRAWN, False)
    assert isinstance(decide_next_undo(await world.load(task.task_no), world.store.store_id), Compensate)


async def test_what_a_process_carries_out_cannot_be_answered_as_not_happened(world: World) -> None:
    task, _ = await world.running(await world.held(), "charge")
    answer = await world.refused(verb(task, Verb.ANSWER, step=1, did_not_happen=True), "not_allowed")
    assert answer is None or "being attempted now" in str(answer)
