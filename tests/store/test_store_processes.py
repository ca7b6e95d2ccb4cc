"""Processes and leases: who lives, who may be freed, what a loss costs."""

import msgspec
import pytest
from store_world import FAILED, LEASE, NOON, TestClock, World, gave_up, kinds, retry_at, step, undo_of

from arriero.core.lease import on_process_lost
from arriero.model import Instant, StepState, TaskState, later
from arriero.model.failures import TaskFailure
from arriero.model.moves import BeginUndo, Hold, PlanUndo, PutDown, Succeeded
from arriero.model.processes import ProcessRow

LOST = TaskFailure("lost", "3 processes died with it", code="lost")


async def test_each_process_start_gets_a_number_and_an_event(world: World) -> None:
    assert [await world.process("a"), await world.process("b")] == [1, 2]
    rows = [row async for row in world.store.history(0)]
    assert [(row.task_id, row.link, row.actor) for row in rows] == [("", 1, "a"), ("", 2, "b")]
    assert [e["process"] for e in await world.events(0)] == [1, 2]
    await world.check_chains()


async def test_a_renewal_prolongs_the_lease_and_shows_the_others(world: World, clock: TestClock) -> None:
    await world.process("a")
    await world.process("b")
    clock.move(1)
    renewal = await world.store.renew(1, LEASE)
    assert (renewal.now, renewal.renewed) == (clock.at, True)
    assert renewal.others == (ProcessRow(2, "b", later(Instant(NOON), LEASE), False),)
    clock.move(1)
    renewal = await world.store.renew(2, LEASE)
    assert renewal.others == (ProcessRow(1, "a", Instant(NOON + 4_000_000), False),)


async def test_a_process_is_retired_only_when_its_lease_lapsed_or_it_is_known_to_be_dead(
    world: World, clock: TestClock
) -> None:
    for name in ("a", "b", "c"):
        await world.process(name)
    clock.to(Instant(NOON + 2_999_999))
    assert not await world.store.retire(1, by="b", known_dead=False)
    assert await world.store.retire(3, by="b", known_dead=True)
    clock.move(0.000001)
    assert await world.store.retire(1, by="b", known_dead=False)
    assert (await world.events(0))[-1] == {"type": "process.retired", "process": 1, "known_dead": False}
    await world.check_chains()


async def test_retiring_twice_is_said_once(world: World) -> None:
    await world.process()
    assert await world.store.retire(1, by="b", known_dead=True)
    count = len(await world.events(0))
    assert await world.store.retire(1, by="c", known_dead=False)
    assert len(await world.events(0)) == count


async def test_what_a_process_reports_with_its_renewal_is_seen_by_the_others(world: World) -> None:
    await world.store.register("a", LEASE)
    await world.store.register("b", LEASE)
    assert await world.store.renew(1, LEASE, '{"payments":[3,10]}')
    (other,) = (await world.store.renew(2, LEASE)).others
    assert other.room == '{"payments":[3,10]}'
    assert [process.room for process in (await world.store.known_processes())[1]] == [other.room, ""]
    await world.store.renew(1, LEASE)
    assert (await world.store.renew(2, LEASE)).others[0].room == "", "the last renewal counts"


async def test_a_process_that_was_retired_cannot_renew(world: World, clock: TestClock) -> None:
    await world.process("a")
    await world.process("b")
    clock.move(LEASE)
    await world.store.retire(1, by="b", known_dead=False)
    assert not (await world.store.renew(1, LEASE)).renewed
    assert (await world.store.renew(2, LEASE)).others == ()


async def test_a_retired_process_claims_and_takes_nothing(world: World) -> None:
    await world.process("a")
    await world.process("b")
    held = await world.held("runs", process_no=2)
    await world.submit("waits")
    await world.written(world.advance_command(held, opened=(step(),)))
    await world.store.retire(1, by="b", known_dead=True)
    assert await world.claim(1) == []
    assert await world.take(1) == []
    assert [loaded.task.task_id for loaded in await world.claim(2)] == ["waits"]
    assert len(await world.take(2)) == 1


async def test_a_renewal_in_time_saves_a_process(world: World, clock: TestClock) -> None:
    await world.process("a")
    clock.move(2.9)
    await world.store.renew(1, LEASE)
    clock.move(2.9)
    assert not await world.store.retire(1, by="b", known_dead=False)


async def test_a_retired_process_is_shown_for_as_long_as_a_row_names_it(world: World) -> None:
    for name in ("a", "b"):
        await world.process(name)
    held = await world.held("held", process_no=1)
    await world.opened(await world.held("other", process_no=2), step())
    (dispatch,) = await world.take(1)
    await world.lose(1)
    assert [p.process_no for p in (await world.store.renew(2, LEASE)).others] == [1]
    await world.written(world.free_command(held, lost_by=1))
    assert [p.process_no for p in (await world.store.renew(2, LEASE)).others] == [1]
    await world.report(dispatch.step)
    assert (await world.store.renew(2, LEASE)).others == ()


async def test_after_a_time_when_nobody_renewed_nobody_frees_for_one_lease(world: World, clock: TestClock) -> None:
    await world.process("a")
    await world.process("b")
    assert (await world.store.renew(1, LEASE)).nobody_frees_until <= clock.at
    clock.move(LEASE)
    assert (await world.store.renew(1, LEASE)).nobody_frees_until <= clock.at
    clock.move(LEASE + 0.000001)
    renewal = await world.store.renew(1, LEASE)
    assert renewal.nobody_frees_until == later(clock(), LEASE)
    clock.move(1)
    assert (await world.store.renew(2, LEASE)).nobody_frees_until == renewal.nobody_frees_until


# --- freeing
async def test_what_a_process_holds_is_its_tasks_and_those_with_a_step_running_there(world: World) -> None:
    first = await world.held("order-1", process_no=1)
    second, _ = await world.opened(await world.held("order-2", process_no=2), step())
    await world.held("order-3", process_no=2)
    await world.take(1)
    held = await world.store.load_held(1, 10)
    assert held == [await world.load(first.task_no), await world.load(second.task_no)]
    assert await world.store.load_held(1, 1) == held[:1]
    assert await world.store.load_held(7, 10) == []


async def test_a_lost_holder_costs_no_attempt_but_a_loss(world: World, clock: TestClock) -> None:
    process_no = await world.process()
    task, (charge,) = await world.running(await world.held(process_no=process_no), "charge")
    clock.move(1)
    await world.lose(process_no)
    (command,) = on_process_lost(await world.store.load_held(process_no, 10), process_no, "other")
    answer = await world.written(command)
    (after,) = answer.steps
    assert (after.state, after.attempt, after.failure_count, after.lost_count) == (StepState.PENDING, 1, 0, 1)
    assert (after.fence, after.in_doubt, after.not_before, after.locked_by) == (charge.fence + 1, True, clock.at, None)
    assert (after.idempotency_key, after.complete_by) == (charge.idempotency_key, None)
    freed = answer.task
    assert (freed.locked_by, freed.fence, freed.lost_count, freed.not_before) == (None, task.fence + 1, 1, clock.at)
    assert (freed.state, freed.failure_count, freed.open_count) == (TaskState.PROCESSING, 0, 1)
    assert kinds(await world.last_events()) == ["step.lost", "task.lost", "task.released"]
    await world.refused(world.report_command(charge), "stale")
    assert await world.store.load_held(process_no, 10) == []


async def test_nothing_is_freed_while_its_process_is_not_retired(world: World) -> None:
    process_no = await world.process()
    task, (charge,) = await world.running(await world.held(process_no=process_no), "charge")
    await world.refused(world.free_command(task, [charge]), "moved_on")
    await world.lose(process_no)
    await world.written(world.free_command(task, [charge]))


async def test_freeing_is_guarded_by_the_fences(world: World) -> None:
    process_no = await world.process()
    task, (charge,) = await world.running(await world.held(process_no=process_no), "charge")
    await world.lose(process_no)
    wrong_step = msgspec.structs.replace(charge, fence=charge.fence + 1)
    await world.refused(world.free_command(task, [wrong_step], fence=task.fence + 1), "moved_on")
    await world.refused(world.free_command(task, fence=None), "moved_on")
    await world.refused(world.free_command(task, task_no=99), "unknown")
    command = world.free_command(task, [charge])
    await world.written(command)
    await world.refused(command, "moved_on")
    assert (await world.task(task.task_no)).lost_count == 1


async def test_a_step_lost_under_a_task_that_another_holds_is_freed_alone(world: World) -> None:
    doomed = await world.process()
    task, _ = await world.opened(await world.held(process_no=9), step())
    (dispatch,) = await world.take(doomed)
    await world.lose(doomed)
    (command,) = on_process_lost(await world.store.load_held(doomed, 10), doomed, "other")
    answer = await world.written(command)
    assert (answer.task.locked_by, answer.task.fence, answer.task.lost_count) == (9, task.fence, 1)
    assert answer.task.revision == task.revision + 1
    (again,) = await world.take(3)
    assert (again.step.fence, again.step.attempt, again.lost_count) == (dispatch.step.fence + 2, 1, 1)


async def test_who_was_not_to_blame_is_not_charged(world: World) -> None:
    process_no = await world.process()
    task = await world.held(process_no=process_no)
    await world.lose(process_no)
    freed = (await world.written(world.free_command(task, charged=False))).task
    assert (freed.lost_count, freed.locked_by) == (0, None)
    assert kinds(await world.last_events()) == ["task.released"]


async def test_a_task_lost_too_often_is_held(world: World) -> None:
    (task_no,) = await world.suspects("suspect")
    process_no = await world.process("third")
    (loaded,) = await world.claim(process_no)
    task, (charge, _) = await world.opened(loaded.task, step(take=True), step("reserve"))
    await world.lose(process_no)
    (command,) = on_process_lost(await world.store.load_held(process_no, 10), process_no, "other")
    ended = (await world.written(command)).task
    assert (ended.state, ended.lost_count, ended.locked_by) == (TaskState.HELD, 3, None)
    steps = (await world.load(task_no)).steps
    assert [(one.state, one.in_doubt) for one in steps] == [(StepState.WITHDRAWN, True), (StepState.WITHDRAWN, False)]
    assert kinds(await world.last_events())[-2:] == ["task.terminal", "alert.opened"]
    assert charge.state is StepState.RUNNING
    assert task.lost_count == 2


async def test_a_task_is_held_at_the_loss_that_its_command_names(world: World) -> None:
    await world.suspects("suspect")
    for number in (3, 4):
        process_no = await world.process(f"lost {number}")
        await world.claim(process_no)
        await world.lose(process_no)
        held = await world.store.load_held(process_no, 10)
        (command,) = on_process_lost(held, process_no, "other", held_from=4)
        after = (await world.written(command)).task
        assert (after.lost_count, after.state is TaskState.HELD) == (number, number == 4)


async def test_what_a_process_says_of_itself_is_replaced_also_when_it_is_retired(world: World) -> None:
    await world.process("a")
    await world.process("b")
    await world.store.describe(1, '{"app":"shop","leaving":true}')
    assert [other.about for other in (await world.store.renew(2, LEASE)).others] == ['{"app":"shop","leaving":true}']
    assert [one.about for one in (await world.store.known_processes())[1]] == ['{"app":"shop","leaving":true}', "{}"]
    await world.lose(1)
    await world.store.describe(1, '{"leaving":true}')  # said late
    assert (await world.store.renew(2, LEASE)).renewed


async def test_a_task_that_made_progress_meanwhile_is_freed_not_held(world: World) -> None:
    await world.suspects("suspect")
    process_no = await world.process("third")
    (loaded,) = await world.claim(process_no)
    await world.opened(loaded.task, step(), step("reserve", take=True))
    (dispatch,) = await world.take(8)
    await world.lose(process_no)
    (command,) = on_process_lost(await world.store.load_held(process_no, 10), process_no, "other")
    assert command.hold is not None
    await world.report(dispatch.step, process_no=8)
    freed = (await world.written(command)).task
    assert (freed.state, freed.lost_count, freed.locked_by) == (TaskState.PROCESSING, 1, None)


async def test_a_step_lost_after_the_undo_began_stays_in_doubt_and_wakes_the_undo(
    world: World, clock: TestClock
) -> None:
    process_no = await world.process()
    task, (charge,) = await world.running(await world.held(process_no=process_no), "charge")
    task = (await world.advance(task, ending=BeginUndo(FAILED))).task
    task = (await world.advance(task, ending=PutDown(None))).task
    clock.move(1)
    await world.lose(process_no)
    answer = await world.written(world.free_command(task, [charge], fence=None, lost_by=process_no))
    (after,) = answer.steps
    assert (after.state, after.in_doubt) == (StepState.WITHDRAWN, True)
    assert (answer.task.open_count, answer.task.not_before) == (0, clock.at)


async def test_a_compensation_lost_with_its_process_is_carried_out_again(world: World) -> None:
    process_no = await world.process()
    task, (charge,) = await world.running(await world.held(process_no=process_no), "charge")
    task = (await world.advance(task, [world.reported(charge)])).task
    answer = await world.advance(task, ending=PlanUndo(FAILED, (undo_of(charge, take=True),)))
    await world.lose(process_no)
    (command,) = on_process_lost(await world.store.load_held(process_no, 10), process_no, "other")
    await world.written(command)
    (dispatch,) = await world.take(2)
    assert (dispatch.step.undoes, dispatch.step.attempt) == (charge.step_no, 1)
    assert answer.task.state is TaskState.COMPENSATING
    assert (await world.task(task.task_no)).state is TaskState.COMPENSATING


@pytest.mark.parametrize("outcome", [Succeeded("1"), gave_up()])
async def test_the_attempt_of_a_held_task_lost_with_its_process_charges_nobody(world: World, outcome: object) -> None:
    process_no = await world.process()
    task, (charge,) = await world.running(await world.held(process_no=process_no), "charge")
    await world.advance(task, ending=Hold(FAILED))
    await world.lose(process_no)
    (command,) = on_process_lost(await world.store.load_held(process_no, 10), process_no, "other")
    answer = await world.written(command)
    assert (answer.task.state, answer.task.lost_count, answer.task.open_count) == (TaskState.HELD, 0, 0)
    assert answer.steps[0].state is StepState.WITHDRAWN
    await world.refused(world.report_command(charge, outcome), "stale")


async def test_a_retry_after_a_loss_keeps_the_doubt(world: World) -> None:
    process_no = await world.process()
    task, (charge,) = await world.running(await world.held(process_no=process_no), "charge")
    await world.lose(process_no)
    await world.written(world.free_command(task, [charge]))
    (again,) = await world.take(2)
    assert again.step.in_doubt
    answer = await world.report(again.step, retry_at(NOON, in_doubt=True), process_no=2)
    assert answer.steps[0].in_doubt
