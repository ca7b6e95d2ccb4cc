"""Payloads that people replaced, and answers that came too late, are kept until their task is purged, in every store."""

import sqlite3
from collections.abc import Awaitable, Callable
from contextlib import closing
from pathlib import Path
from typing import Any, Literal

import pytest
from store_world import COMPLETE_WITHIN, DONE, NOON, TestClock, World, gave_up, step, undo_of

from arriero.audit.payload_record import find_first_dispatches, list_argument_versions
from arriero.model import Instant, StepRow, TaskRow, Verb
from arriero.model.commands import Operate, Report
from arriero.model.failures import TaskFailure
from arriero.model.moves import BeginUndo, Compensate, Hold, PlanUndo, Process, Succeeded
from arriero.store.contract import Purge, PurgeNamed
from arriero.store.sqlite.store import SqliteStore

REFUSED = TaskFailure("step", "charge: declined", "charge", "declined", redo=(1,))
PERSON = TaskFailure("person", "compensated by ann: not wanted", code="compensated")
NEVER = Instant(NOON + 10**15)


def verb(asked: Verb, task: TaskRow, **changes: Any) -> Operate:
    fields: dict[str, Any] = {"actor": "operator", "by": "ann", "reason": "wrong card", "store_id": "store"}
    return Operate(verb=asked, task_no=task.task_no, incarnation=task.incarnation, **(fields | changes))


async def refused_charge(world: World, **changes: Any) -> TaskRow:
    """A held task whose only step was declined."""
    task, (charge,) = await world.opened(await world.held(**changes), step(take=True, arguments='{"card":"4111"}'))
    return (await world.advance(task, [world.reported(charge, gave_up())], ending=Hold(REFUSED))).task


async def edited(world: World, task: TaskRow, arguments: str, **changes: Any) -> TaskRow:
    return (await world.written(verb(Verb.RESUBMIT, task, step=1, arguments=arguments, **changes))).task


async def declined_again(world: World) -> TaskRow:
    """The edited step is sent, and declined once more."""
    (loaded,) = await world.claim()
    answer = await world.advance(loaded.task, opened=[step(reopens=loaded.steps[0].step_no, take=True)])
    return (await world.advance(answer.task, [world.reported(answer.steps[0], gave_up())], ending=Hold(REFUSED))).task


async def twice_edited(world: World, clock: TestClock, **changes: Any) -> TaskRow:
    task = await refused_charge(world, **changes)
    clock.move(60)
    task = await edited(world, task, '{"card":"4222"}')
    task = await declined_again(world)
    clock.move(300)
    return await edited(world, task, '{"card":"4333"}', by="bob", reason="that one is blocked")


async def is_forgotten(world: World, task_no: int) -> bool:
    return not await world.store.edits(task_no) and not await world.store.late_answers(task_no)


# --- edits
async def test_each_life_of_a_steps_arguments_is_kept_with_who_edited_it_when_and_why(
    world: World, clock: TestClock
) -> None:
    task = await twice_edited(world, clock)
    first, second = await world.store.edits(task.task_no)
    assert (first.ordinal, first.what, first.before, first.after) == (
        1,
        "arguments",
        '{"card":"4111"}',
        '{"card":"4222"}',
    )
    assert (first.edited_by, first.reason, first.at) == ("ann", "wrong card", NOON + 60_000_000)
    assert (first.incarnation, first.attempt, first.key_before) == (2, 2, "charge#1")
    assert (second.before, second.after) == ('{"card":"4222"}', '{"card":"4333"}')
    assert (second.edited_by, second.reason, second.at) == ("bob", "that one is blocked", clock.at)
    assert (second.incarnation, second.attempt, second.key_before) == (3, 3, first.key_after)
    assert len({first.key_before, first.key_after, second.key_after}) == 3


async def test_which_of_them_were_sent_and_when_is_known_from_the_history(world: World, clock: TestClock) -> None:
    task = await twice_edited(world, clock)
    history = [row async for row in world.store.history(task.task_no)]
    found = list_argument_versions(
        await world.load(task.task_no), await world.store.edits(task.task_no), find_first_dispatches(history)
    )
    told = [(one.arguments, one.edited_by, None if one.sent is None else one.sent.attempt) for one in found]
    assert told == [('{"card":"4111"}', "", 1), ('{"card":"4222"}', "ann", 2), ('{"card":"4333"}', "bob", None)]


async def test_both_bodies_of_a_task_whose_code_asked_for_nothing_are_kept(world: World) -> None:
    task = (await world.advance(await world.held(), ending=Hold(TaskFailure("bug", "ValueError")))).task
    await world.written(verb(Verb.RESUBMIT, task, arguments='{"pieces":9}'))
    (edit,) = await world.store.edits(task.task_no)
    assert (edit.ordinal, edit.before, edit.after) == (0, '{"pieces":2}', '{"pieces":9}')
    assert (edit.edited_by, edit.incarnation, edit.attempt, edit.key_before) == ("ann", 2, 0, "")


async def test_a_result_given_by_hand_is_kept_with_its_giver(world: World) -> None:
    task, _ = await world.opened(await world.held(), step(take=True))
    await world.written(verb(Verb.ANSWER, task, step=1, result='"receipt 7"', reason="the bank says so"))
    (edit,) = await world.store.edits(task.task_no)
    assert (edit.what, edit.ordinal, edit.before, edit.after) == ("result", 1, None, '"receipt 7"')
    assert (edit.edited_by, edit.reason) == ("ann", "the bank says so")


async def test_the_output_of_a_task_that_is_undone_after_its_end_is_kept(world: World) -> None:
    task, (charge,) = await world.opened(await world.held(), step(take=True))
    task = (await world.advance(task, [world.reported(charge)], ending=Process('"shipped"'))).task
    task = (await world.written(verb(Verb.COMPENSATE, task, reason="not wanted"))).task
    (loaded,) = await world.claim()
    planned = await world.advance(loaded.task, ending=PlanUndo(PERSON, (undo_of(charge, take=True),)))
    report = world.reported(planned.steps[-1], Succeeded("null"))
    undone = await world.advance(planned.task, [report], ending=Compensate(PERSON))
    assert undone.task.output is None
    (edit,) = await world.store.edits(task.task_no)
    assert (edit.what, edit.ordinal, edit.before, edit.after) == ("output", 0, '"shipped"', None)


async def test_a_verb_that_is_refused_keeps_nothing(world: World, clock: TestClock) -> None:
    task = await twice_edited(world, clock)
    before = await world.store.edits(task.task_no)
    await world.refused(verb(Verb.RESUBMIT, task, step=1, arguments='{"card":"4444"}'), "not_allowed")
    assert await world.store.edits(task.task_no) == before


# --- late answers
async def expired(world: World, clock: TestClock) -> StepRow:
    """A step whose first attempt has expired and was recovered."""
    process_no = await world.process()
    _, (charge,) = await world.running(await world.held(process_no=process_no), "charge")
    clock.move(COMPLETE_WITHIN)
    await world.written(world.recover_command(charge, await world.lead(process_no)))
    return charge


def late_report(world: World, of: StepRow, outcome: Any = DONE, *, late: bool = True) -> Report:
    told = world.report_command(of, outcome, attempt=of.attempt, complete_by=of.complete_by)
    return Report(actor=told.actor, process_no=told.process_no, report=told.report, late=late)


async def test_an_answer_after_its_time_is_kept_with_its_value_and_changes_nothing(
    world: World, clock: TestClock
) -> None:
    charge = await expired(world, clock)
    clock.move(2)
    await world.refused(late_report(world, charge, Succeeded('"receipt 7"')), "stale")
    (answer,) = await world.store.late_answers(charge.task_no)
    assert (answer.ordinal, answer.attempt, answer.fence) == (1, 1, charge.fence)
    assert (answer.outcome, answer.answer, answer.verdict) == ("succeeded", '"receipt 7"', "stale")
    assert (answer.answered_at, answer.complete_by) == (clock.at, charge.complete_by)
    (event,) = await world.last_events()
    assert (event["verdict"], event["attempt"], event["kept"]) == ("stale", 1, True)
    assert "receipt 7" not in str(event)


async def test_a_failure_after_its_time_is_kept_too(world: World, clock: TestClock) -> None:
    charge = await expired(world, clock)
    await world.refused(late_report(world, charge, gave_up()), "stale")
    (answer,) = await world.store.late_answers(charge.task_no)
    assert answer.outcome == "failed"
    assert "declined" in answer.answer


async def test_what_its_agent_calls_late_never_counts_though_the_store_would_have_time_left(world: World) -> None:
    _, (charge,) = await world.running(await world.held(), "charge")
    await world.refused(late_report(world, charge), "late")
    assert len(await world.store.late_answers(charge.task_no)) == 1
    await world.report(charge)  # the attempt is still the one that counts


async def test_of_an_answer_that_is_told_twice_one_is_kept(world: World, clock: TestClock) -> None:
    charge = await expired(world, clock)
    for _ in range(2):
        await world.refused(late_report(world, charge), "stale")
    assert len(await world.store.late_answers(charge.task_no)) == 1


async def test_a_failure_that_counted_and_is_sent_again_is_not_kept_as_a_late_answer(
    world: World, clock: TestClock
) -> None:
    """The answer of its commit was lost. By now the next attempt is under way, so it looks stale."""
    charge = await expired(world, clock)
    await world.refused(late_report(world, charge, gave_up(), late=False), "stale")
    assert await world.store.late_answers(charge.task_no) == []


@pytest.mark.parametrize("ending", ["undone", "processed"])
async def test_an_answer_after_the_tasks_end_is_kept_and_changes_nothing(
    world: World, clock: TestClock, ending: str
) -> None:
    process_no = await world.process()
    task, (charge,) = await world.running(await world.held(process_no=process_no), "charge")
    if ending == "undone":
        task = (await world.advance(task, ending=BeginUndo(PERSON))).task
    clock.move(COMPLETE_WITHIN)
    await world.written(world.recover_command(charge, await world.lead(process_no), outcome=gave_up()))
    task = await world.task(task.task_no)
    await world.advance(task, ending=Compensate(PERSON) if ending == "undone" else Process("1"))
    await world.refused(late_report(world, charge), "stale")
    assert len(await world.store.late_answers(charge.task_no)) == 1


# --- until they are purged
async def test_a_release_that_does_not_know_them_removes_them_with_the_task(
    open_sqlite: Callable[[], Awaitable[SqliteStore]], clock: TestClock, tmp_path: Path
) -> None:
    """As a purge of release 0.4.0 does; for PostgreSQL see test_postgres_purging."""
    world = World(await open_sqlite(), clock, looks_often=False)
    task = await twice_edited(world, clock)
    (loaded,) = await world.claim()
    answer = await world.advance(loaded.task, opened=[step(reopens=loaded.steps[0].step_no, take=True)])
    await world.refused(late_report(world, answer.steps[0]), "late")
    with closing(sqlite3.connect(tmp_path / "store.db", isolation_level=None)) as connection:
        connection.execute("DELETE FROM arriero_task")
    assert await is_forgotten(world, task.task_no)


@pytest.mark.parametrize("by", ["age", "task", "convoy"])
async def test_a_purge_removes_them_with_their_task(
    world: World, clock: TestClock, by: Literal["age", "task", "convoy"]
) -> None:
    task = await twice_edited(world, clock, convoy="k")
    (loaded,) = await world.claim()
    answer = await world.advance(loaded.task, opened=[step(reopens=loaded.steps[0].step_no, take=True)])
    (charge,) = answer.steps
    await world.refused(late_report(world, charge), "late")
    await world.advance(answer.task, [world.reported(charge)], ending=Process("1"))
    for alert in await world.store.take_alerts(10, 60):
        await world.store.settle_alert(alert.no, alert.attempts, ("log",), None, "")
    assert not await is_forgotten(world, task.task_no)
    if by == "age":
        purged = await world.store.purge(
            Purge(states=(answer.task.state.PROCESSED,), ended_before=NEVER), actor="j", limit=9
        )
        assert purged.count == 1
    else:
        which = PurgeNamed(what=by, name=task.task_id if by == "task" else "k", ended_before=NEVER)
        assert (await world.store.purge_named(which, actor="j", limit=9)).kept == ""
    assert await world.store.load(task.task_no) is None
    assert await is_forgotten(world, task.task_no)
