"""What people do to tasks, in every store: the table of verb and state, what each verb leaves in the rows, and races."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import pytest
from store_checks import broken_links, disagreements, history_violations
from store_world import (
    DONE,
    FAILED,
    NOON,
    STEP_POLICY,
    TestClock,
    World,
    gave_up,
    kinds,
    retry_at,
    step,
    submission,
    timer,
    undo_of,
)

from arriero.core.supervision import on_limit_passed
from arriero.core.undo import decide_next_undo
from arriero.core.verb_guards import list_allowed_verbs
from arriero.model import Loaded, StepKind, StepState, TaskRow, TaskState, Verb, later
from arriero.model.answers import Applied, Refusal, Submitted
from arriero.model.commands import Advance, AnyCommand, AssignApp, EndByLimit, Operate
from arriero.model.failures import TaskFailure
from arriero.model.moves import BeginUndo, Compensate, Ending, Hold, PlanUndo, Process, PutDown, Reported
from arriero.model.policies import Supervision, TaskPolicy
from arriero.model.processes import ProcessAbout
from arriero.model.verb_rules import VERBS
from arriero.store.state_store import StateStore
from arriero.store.task_filter import TaskFilter

MINUTE = 60.0
REDO = TaskFailure("step", "reserve: declined", "reserve", "declined", redo=(2,))
UNDO_FAILED = TaskFailure("undo", "the undo of charge failed", "charge", "undo_failed", began_by=FAILED)
LIMITED = msgspec.json.encode(TaskPolicy(MINUTE, Supervision())).decode()


# --- tasks in every state
async def _pending(world: World, **_: Any) -> TaskRow:
    return await world.task(await world.submit(complete_within=MINUTE, policy=LIMITED))


async def _processing(world: World, pivot: bool = False) -> TaskRow:
    """Its first step is done, its second is attempted."""
    task = await world.held(complete_within=MINUTE, policy=LIMITED, reply_to="web")
    task, (charge, _) = await world.opened(task, step(take=True, pivot=pivot), step("reserve", take=True))
    return (await world.advance(task, [world.reported(charge)])).task


async def _delivered(world: World, task: TaskRow, *outcomes: Any, ending: Any) -> TaskRow:
    steps = [one for one in (await world.load(task.task_no)).steps if one.state is StepState.RUNNING]
    reports = [world.reported(one, outcome) for one, outcome in zip(steps, outcomes, strict=True)]
    return (await world.advance(task, reports, ending=ending)).task


async def _processed(world: World, pivot: bool = False) -> TaskRow:
    return await _delivered(world, await _processing(world, pivot), DONE, ending=Process('"shipped"'))


async def _held(world: World, pivot: bool = False) -> TaskRow:
    return await _delivered(world, await _processing(world, pivot), gave_up(), ending=Hold(REDO))


async def _compensating(world: World) -> TaskRow:
    """Only its first step was done; that one is being undone."""
    task, (charge,) = await world.running(await world.held(reply_to="web"), "charge")
    task = (await world.advance(task, [world.reported(charge)], ending=BeginUndo(FAILED))).task
    return (await world.advance(task, ending=PlanUndo(FAILED, (undo_of(charge, take=True),)))).task


async def _compensated(world: World) -> TaskRow:
    return await _delivered(world, await _compensating(world), DONE, ending=Compensate(FAILED))


async def _held_in_an_undo(world: World) -> TaskRow:
    return await _delivered(world, await _compensating(world), gave_up(), ending=Hold(UNDO_FAILED))


async def _paused(world: World, task: TaskRow) -> TaskRow:
    return (await world.written(verb(Verb.PAUSE, task))).task


SITUATIONS: dict[str, Callable[[World], Awaitable[TaskRow]]] = {
    "pending": _pending,
    "processing": _processing,
    "processing, past a pivot": lambda world: _processing(world, pivot=True),
    "processed": _processed,
    "processed, past a pivot": lambda world: _processed(world, pivot=True),
    "held": _held,
    "held, past a pivot": lambda world: _held(world, pivot=True),
    "held in an undo": _held_in_an_undo,
    "compensating": _compensating,
    "compensated": _compensated,
}
OPEN = ("pending", "processing", "processing, past a pivot", "compensating")
ALLOWED = {
    "pending": "compensate cancel extend adjust pause snooze",  # no step is there that could be answered
    "processing": "compensate cancel extend adjust answer pause snooze",
    "processing, past a pivot": "cancel extend adjust answer pause snooze",
    "processed": "compensate",
    "processed, past a pivot": "",
    "held": "resubmit compensate answer",
    "held, past a pivot": "resubmit answer",
    "held in an undo": "resubmit answer",
    "compensating": "adjust answer pause snooze",
    "compensated": "resubmit",
}


def verb(asked: Verb, task: TaskRow, **changes: Any) -> Operate:
    fields: dict[str, Any] = {"actor": "operator", "by": "ana", "reason": "she says so", "store_id": "store"}
    fields |= {"verb": asked, "task_no": task.task_no, "incarnation": task.incarnation}
    if asked is Verb.EXTEND:
        fields["within"] = 2 * MINUTE
    if asked is Verb.ADJUST and task.state is not TaskState.COMPENSATING:
        fields["within"] = 2 * MINUTE
    elif asked is Verb.ADJUST:
        fields["limits"] = '{"attempts":9}'
    if asked is Verb.ANSWER:
        fields |= {"step": 2, "result": '"by hand"'}
    if asked is Verb.SNOOZE:
        fields["within"] = MINUTE / 2
    if asked is Verb.TAG:
        fields["tags"] = '{"old":null,"tenant":"acme"}'
    if asked is Verb.PIN:
        fields["to"] = "2@blue"
    return Operate(**(fields | changes))


async def _all(store: StateStore) -> list[Any]:
    return [[row async for row in store.history()], await store.alerts(open_only=False), await store.survey()]


async def refused(world: World, command: Operate, verdict: str = "not_allowed") -> Refusal:
    """Nothing changes, neither rows nor history; the refusal says what the task is and allows."""
    before = await _all(world.store), await world.rows()
    answer = await world.apply(command)
    assert (await _all(world.store), await world.rows()) == before
    assert isinstance(answer, Refusal), answer
    loaded = await world.load(command.task_no)
    task = loaded.task
    assert (answer.verdict, answer.state, answer.allowed) == (
        verdict,
        task.state,
        list_allowed_verbs(task, loaded.life),
    )
    assert repr(task.task_id) in answer.detail
    return answer


def _allowed(situation: str, paused: bool) -> list[str]:
    """What the table allows; a task that is paused is resumed where it could have been paused."""
    allowed = ALLOWED[situation].split()
    return [name for name in allowed if name != "pause"] + ["resume"] if paused else allowed


async def _in_situation(world: World, situation: str, paused: bool) -> tuple[TaskRow, TaskRow]:
    """A task as the situation says, before it was paused and after."""
    task = await SITUATIONS[situation](world)
    return task, await _paused(world, task) if paused else task


CELLS = [(situation, False) for situation in SITUATIONS] + [(situation, True) for situation in OPEN]
CELLS_ALLOWED = [(asked, *cell) for cell in CELLS for asked in Verb if asked in _allowed(*cell)]


def _named(value: object) -> str:
    return ("paused" if value else "running") if isinstance(value, bool) else str(value)


@pytest.mark.parametrize(("asked", "situation", "paused"), CELLS_ALLOWED, ids=_named)
async def test_a_verb_that_the_table_allows_is_carried_out(
    world: World, asked: Verb, situation: str, paused: bool
) -> None:
    before, task = await _in_situation(world, situation, paused)
    alert_was_open = bool(await world.store.alerts())
    after = (await world.written(verb(asked, task))).task
    assert after.fence > task.fence
    assert after.revision > task.revision
    assert after.locked_by is None
    opens = task.ended_at is not None and asked in (Verb.RESUBMIT, Verb.COMPENSATE)
    assert after.incarnation == task.incarnation + opens
    event = (await world.last_events(task.task_no))[0]
    told = [event[name] for name in ("type", "verb", "by", "reason", "before", "after")]
    assert told == ["operator.action", asked, "ana", "she says so", task.state, after.state]
    is_open = after.state is TaskState.HELD
    assert [alert.incarnation for alert in await world.store.alerts()] == [after.incarnation] * is_open
    closed = [alert for alert in await world.store.alerts(open_only=False) if alert.closed_at is not None]
    assert len(closed) == (alert_was_open and not is_open)
    if before.locked_by is not None:  # whoever drove it comes too late
        await world.refused(world.advance_command(before), "moved_on")


@pytest.mark.parametrize(("situation", "paused"), CELLS, ids=_named)
async def test_a_verb_that_the_table_does_not_allow_is_refused_and_changes_nothing(
    world: World, situation: str, paused: bool
) -> None:
    """One task is asked for all of them, because a refusal leaves it as it was."""
    _, task = await _in_situation(world, situation, paused)
    listed = [asked for asked in Verb if VERBS[asked].is_listed]
    others = [asked for asked in listed if asked not in _allowed(situation, paused)]
    assert others
    for asked in others:
        await refused(world, verb(asked, task))


@pytest.mark.parametrize("situation", SITUATIONS)
async def test_who_saw_another_incarnation_is_told_who_came_first(world: World, situation: str) -> None:
    task = await SITUATIONS[situation](world)
    for asked in Verb:
        refusal = await refused(world, verb(asked, task, incarnation=task.incarnation + 1), "came_first")
        assert f"is {task.state} in incarnation {task.incarnation}" in refusal.detail


async def test_a_batch_of_verbs_is_answered_one_by_one_and_a_refusal_stops_none(world: World) -> None:
    task = await _held(world)
    other = await world.task(await world.submit("order-2"))
    commands = [verb(Verb.RESUBMIT, task), verb(Verb.RESUBMIT, task), verb(Verb.PAUSE, other, task_no=99)]
    answers = await world.store.apply([*commands, verb(Verb.PAUSE, other)])
    assert [getattr(answer, "verdict", "written") for answer in answers] == [
        "written",
        "came_first",
        "unknown",
        "written",
    ]


# --- resubmit
async def test_a_resubmitted_step_runs_again_under_its_key_and_the_task_ends(world: World, clock: TestClock) -> None:
    task = await _held(world)
    clock.move(9)
    again = (await world.written(verb(Verb.RESUBMIT, task))).task
    assert (again.state, again.not_before, again.complete_by) == (TaskState.PENDING, clock.at, later(clock(), MINUTE))
    (loaded,) = await world.claim()
    set_back = loaded.steps[1]
    assert (set_back.state, set_back.attempt, set_back.failure) == (StepState.WITHDRAWN, 2, None)
    request = step("reserve", take=True, reopens=set_back.step_no, agent="stock", pivot=True, policy=STEP_POLICY)
    task, (running,) = await world.opened(loaded.task, request)
    assert (running.attempt, running.fence, running.idempotency_key) == (2, set_back.fence + 1, "reserve#1")
    assert (running.agent, running.pivot, running.arguments) == ("stock", True, set_back.arguments)
    await _delivered(world, task, DONE, ending=Process("1"))
    assert kinds(await world.last_events()).count("status.published") == 1
    statuses = [(s.kind, s.number, s.incarnation) for s in await world.store.load_statuses("web", 100)]
    assert statuses == [
        ("received", 1, 1),
        ("started", 2, 1),
        ("held", 3, 1),
        ("started", 4, 2),
        ("completed", 5, 2),
    ]


@pytest.mark.parametrize("ending", [Hold(FAILED), BeginUndo(FAILED), Process("1")], ids=lambda e: type(e).__name__)
async def test_what_a_resubmitted_task_leaves_open_is_withdrawn_however_many_results_it_had(
    world: World, ending: Ending
) -> None:
    """A step that is done again has had two results, so as many were recorded as steps were opened."""
    ends_well = isinstance(ending, Process)
    task = await world.held()
    asked = [step(take=True), *([timer(NOON + 3_600_000_000)] if ends_well else [])]
    task, (charge, *_) = await world.opened(task, *asked)
    redo = msgspec.structs.replace(REDO, redo=(1,))
    task = (await world.advance(task, [world.reported(charge, gave_up())], ending=Hold(redo))).task
    await world.written(verb(Verb.RESUBMIT, task))
    (loaded,) = await world.claim()
    again = [msgspec.structs.replace(new, reopens=row.step_no) for new, row in zip(asked, loaded.steps, strict=True)]
    again[0] = msgspec.structs.replace(again[0], take=ends_well)
    task, rows = await world.opened(loaded.task, *again)
    reports = [world.reported(rows[0])] if ends_well else []
    task = (await world.advance(task, reports, ending=ending)).task
    assert (task.opened_count, task.open_count) == (task.result_count, 0)
    left = [StepState.COMPLETED, StepState.WITHDRAWN] if ends_well else [StepState.WITHDRAWN]
    assert [one.state for one in (await world.load(task.task_no)).steps] == left
    assert await world.take() == []


async def test_only_a_step_that_nobody_ever_took_waits_for_an_agent_no_longer_than_it_may(
    world: World, clock: TestClock
) -> None:
    task = await world.held()
    asked = step(wait_within=5.0, take=True), step("reserve", wait_within=5.0, agent="stock")
    task, (charge, reserve) = await world.opened(task, *asked)
    redo = msgspec.structs.replace(REDO, redo=(1,))
    task = (await world.advance(task, [world.reported(charge, gave_up())], ending=Hold(redo))).task
    await world.written(verb(Verb.RESUBMIT, task))
    (loaded,) = await world.claim()
    again = [
        msgspec.structs.replace(new, reopens=row.step_no, take=False)
        for new, row in zip(asked, (charge, reserve), strict=True)
    ]
    _, rows = await world.opened(loaded.task, *again)
    assert [row.wait_by for row in rows] == [None, later(clock(), 5)]


async def test_an_alert_that_is_closed_while_it_is_told_is_told_again_as_closed(world: World) -> None:
    task = await _held(world)
    (taken,) = await world.store.take_alerts(10, MINUTE)
    assert taken.closed_at is None
    await world.written(verb(Verb.RESUBMIT, task))
    assert not await world.store.settle_alert(taken.no, taken.attempts, ("log",), None, "")
    (again,) = await world.store.take_alerts(10, MINUTE)
    assert (again.no, again.told, again.closed_at) == (taken.no, (), world.clock.at)
    assert await world.store.settle_alert(again.no, again.attempts, ("log",), None, "")
    assert await world.store.take_alerts(10, MINUTE) == []


async def test_edited_arguments_and_what_the_code_asks_are_both_kept(world: World) -> None:
    task = await _held(world)
    await world.written(verb(Verb.RESUBMIT, task, step=2, arguments='{"amount":9}'))
    edited = (await world.load(task.task_no)).steps[1]
    assert (edited.arguments, edited.asked) == ('{"amount":9}', '{"amount":5}')
    assert edited.idempotency_key != "reserve#1"


async def test_what_was_undone_runs_anew_and_its_old_submission_still_answers_with_it(world: World) -> None:
    task = await _compensated(world)
    anew = (await world.written(verb(Verb.RESUBMIT, task, arguments='{"pieces":3}'))).task
    assert (anew.past_count, anew.seed != task.seed, anew.body_hash) == (2, True, task.body_hash)
    loaded = await world.load(task.task_no)
    assert (loaded.arguments, loaded.life, len(loaded.steps)) == ('{"pieces":3}', (), 2)
    (same,) = await world.store.submit([submission()])
    assert same == Submitted(task.task_no, False)
    (other,) = await world.store.submit([submission(body_hash="another")])
    assert isinstance(other, Refusal)
    (claimed,) = await world.claim()
    task, (charge,) = await world.opened(claimed.task, step(take=True, idempotency_key="charge anew"))
    assert (charge.ordinal, charge.attempt) == (3, 1)
    await _delivered(world, task, DONE, ending=Process("1"))


async def test_what_asked_for_no_step_takes_other_arguments_and_its_old_submission_still_answers_with_it(
    world: World,
) -> None:
    held = (await world.advance(await world.held(), ending=Hold(FAILED))).task
    await world.written(verb(Verb.RESUBMIT, held, arguments='{"pieces":4}'))
    assert (await world.load(held.task_no)).arguments == '{"pieces":4}'
    spelled = submission(arguments='{ "pieces" : 2.0 }', body_hash="of another spelling")
    assert await world.store.submit([submission(), spelled]) == [Submitted(held.task_no, False)] * 2
    (other,) = await world.store.submit([submission(arguments='{"pieces":4}', body_hash="of the edited")])
    assert isinstance(other, Refusal)
    await world.written(verb(Verb.CANCEL, await world.task(held.task_no)))


async def test_a_report_of_a_life_that_was_undone_changes_nothing(world: World) -> None:
    task, (charge,) = await world.running(await world.held(), "charge")
    task = await _delivered(world, task, retry_at(NOON), ending=BeginUndo(FAILED))
    ended = (await world.advance(task, ending=Compensate(FAILED))).task
    await world.written(verb(Verb.RESUBMIT, ended))
    await world.refused(world.report_command(charge), "duplicate")


async def test_a_failed_undo_goes_on_and_is_undone_only_when_all_is(world: World) -> None:
    task = await _held_in_an_undo(world)
    again = (await world.written(verb(Verb.RESUBMIT, task))).task
    assert (again.state, again.undoing) == (TaskState.COMPENSATING, True)
    assert await finished(world, task.task_no) is TaskState.COMPENSATED


# --- answer
async def test_an_answer_beats_the_attempt_under_way_whose_report_is_kept_as_stale(world: World) -> None:
    task = await _processing(world)
    attempt = (await world.load(task.task_no)).steps[1]
    answered = (await world.written(verb(Verb.ANSWER, task))).steps[0]
    assert (answered.state, answered.result, answered.fence) == (StepState.COMPLETED, '"by hand"', attempt.fence + 1)
    await world.refused(world.report_command(attempt), "stale")
    (event,) = await world.last_events(task.task_no)
    assert (event["type"], event["verdict"]) == ("step.report", "stale")
    assert await world.step(attempt.step_no) == answered
    assert await finished(world, task.task_no) is TaskState.PROCESSED


async def test_a_task_put_down_for_a_step_that_is_answered_while_paused_is_due_when_resumed(world: World) -> None:
    task, _ = await world.opened(await world.held(), step(), step("reserve"))
    task = (await world.advance(task, ending=PutDown(None))).task
    for asked in (Verb.PAUSE, Verb.ANSWER, Verb.RESUME):
        assert await world.claim() == []
        await world.written(verb(asked, task))
    assert [loaded.task.task_no for loaded in await world.claim()] == [task.task_no]


@pytest.mark.parametrize("pivot", [False, True], ids=["step", "pivot"])
async def test_a_request_that_the_undo_left_out_cannot_be_answered_as_done(world: World, pivot: bool) -> None:
    """It was withdrawn before anybody took it; as completed it would be left standing, and the task called undone."""
    task, (charge, _) = await world.opened(await world.held(), step(take=True), step("reserve", pivot=pivot))
    task = (await world.advance(task, [world.reported(charge)], ending=BeginUndo(FAILED))).task
    await world.advance(task, ending=PlanUndo(FAILED, (undo_of(charge, take=True),)))
    await refused(world, verb(Verb.ANSWER, task))
    assert await finished(world, task.task_no) is TaskState.COMPENSATED


# --- pause, resume, extend
async def test_a_paused_task_is_not_claimed_its_requests_are_not_taken_and_its_limit_waits(
    world: World, clock: TestClock
) -> None:
    task, (charge, *_) = await world.opened(
        await world.held(complete_within=MINUTE), step(take=True), step("reserve", wait_within=5.0), timer(NOON + 9)
    )
    term = await world.lead(await world.process())
    task = await _paused(world, task)
    clock.move(2)
    await world.report(charge, retry_at(NOON))  # its next attempt waits too
    clock.move(10 * MINUTE)
    assert (await world.take(), await world.claim()) == ([], [])
    due = await world.store.due(("fulfil",), ("payments",))
    assert (due.tasks, due.steps) == (False, False)
    overdue = await world.store.load_overdue(10, 1.0)
    assert (overdue.past_limit, overdue.starved, overdue.stuck) == ((), (), ())
    loaded = await world.load(task.task_no)
    await world.refused(_by_limit(loaded, term), "moved_on")
    assert [t.task_no for t in await world.store.list_tasks(TaskFilter(paused=True))] == [task.task_no]
    assert (await world.store.survey()).paused == 1
    await world.written(verb(Verb.EXTEND, task))
    resumed = (await world.written(verb(Verb.RESUME, task))).task
    assert resumed.complete_by == later(clock(), 2 * MINUTE)
    assert sorted(d.step.name for d in await world.take()) == ["charge", "reserve"]
    assert [loaded.task.task_no for loaded in await world.claim()] == [task.task_no]


async def test_a_snoozed_task_is_neither_claimed_nor_are_its_requests_taken_before_its_end(
    world: World, clock: TestClock
) -> None:
    process_no = await world.process()
    task, _ = await world.opened(
        await world.held(process_no=process_no), step(), step("reserve", wait_within=5.0), timer(NOON + 9)
    )
    asleep = (await world.written(verb(Verb.SNOOZE, task, within=10 * MINUTE))).task
    assert asleep.not_before == later(clock(), 10 * MINUTE)
    clock.move(10 * MINUTE - 1)
    assert (await world.take(), await world.claim()) == ([], [])
    due = await world.store.due(("fulfil",), ("payments",))
    assert (due.tasks, due.steps) == (False, False)
    overdue = await world.store.load_overdue(10, 1.0)
    assert (overdue.past_limit, overdue.starved, overdue.stuck) == ((), (), ())
    snoozed = TaskFilter(snoozed=True, snoozed_at=clock())
    assert [t.task_no for t in await world.store.list_tasks(snoozed)] == [task.task_no]
    assert await world.store.list_tasks(TaskFilter(snoozed=False, snoozed_at=clock())) == []
    clock.move(1)
    assert await world.store.list_tasks(TaskFilter(snoozed=True, snoozed_at=clock())) == []
    assert sorted(d.step.name for d in await world.take()) == ["charge", "reserve"]
    assert [loaded.task.task_no for loaded in await world.claim()] == [task.task_no]


async def test_what_a_running_attempt_reports_wakes_a_snoozed_task_only_at_the_end(
    world: World, clock: TestClock
) -> None:
    task, (charge, reserve) = await world.opened(await world.held(), step(take=True), step("reserve", take=True))
    await world.written(verb(Verb.SNOOZE, task, within=10 * MINUTE))
    clock.move(1)
    await world.report(charge)
    await world.report(reserve, retry_at(later(clock(), 5)))
    clock.move(10 * MINUTE - 2)
    assert (await world.take(), await world.claim()) == ([], [])
    clock.move(1)
    assert [d.step.name for d in await world.take()] == ["reserve"]
    assert [loaded.task.task_no for loaded in await world.claim()] == [task.task_no]


async def test_a_lost_process_of_a_snoozed_task_frees_its_attempt_for_the_end_of_the_snooze(
    world: World, clock: TestClock
) -> None:
    process_no = await world.process()
    task, (charge,) = await world.running(await world.held(process_no=process_no), "charge")
    task = (await world.written(verb(Verb.SNOOZE, task, within=10 * MINUTE))).task
    await world.lose(process_no)
    await world.written(world.free_command(task, [charge], fence=None, lost_by=process_no))
    assert (await world.take(2), await world.claim()) == ([], [])
    clock.move(10 * MINUTE)
    assert [d.step.attempt for d in await world.take(2)] == [1]


async def test_a_snoozed_task_that_is_assigned_to_another_app_begins_there_at_the_end_of_the_snooze(
    world: World, clock: TestClock
) -> None:
    process_no = await world.store.register("travel", 3_600.0, msgspec.json.encode(ProcessAbout(app="travel")).decode())
    task = (await world.load(await world.submit(app="shop"))).task
    task = (await world.written(verb(Verb.SNOOZE, task, within=10 * MINUTE))).task
    given = AssignApp(actor="cli", task_no=task.task_no, app="travel", from_app="shop", by="ana", reason="it moves")
    assert (await world.written(given)).task.not_before == task.not_before
    assert await world.claimed_ids(process_no, app="travel") == []
    clock.move(10 * MINUTE)
    assert await world.claimed_ids(process_no, app="travel") == [task.task_id]


def _by_limit(loaded: Loaded, term: int) -> EndByLimit:
    task = loaded.task
    return EndByLimit(
        actor="leader",
        task_no=task.task_no,
        fence=task.fence,
        revision=task.revision,
        state=task.state,
        ending=on_limit_passed(loaded),
        term=term,
    )


async def test_a_limit_that_was_extended_no_longer_ends_the_task(world: World, clock: TestClock) -> None:
    task = await _processing(world)
    term = await world.lead(await world.process())
    clock.to(task.complete_by)
    (overdue,) = (await world.store.load_overdue(10, 999.0)).past_limit
    await world.written(verb(Verb.EXTEND, task))
    await world.refused(_by_limit(overdue, term), "moved_on")
    assert (await world.store.load_overdue(10, 999.0)).past_limit == ()


async def test_a_lost_process_of_a_paused_task_leaves_it_paused(world: World) -> None:
    process_no = await world.process()
    task, (charge,) = await world.running(await world.held(process_no=process_no), "charge")
    paused = await _paused(world, task)
    await world.lose(process_no)
    freed = (await world.written(world.free_command(task, [charge], fence=None, lost_by=process_no))).task
    assert freed.paused_at == paused.paused_at
    assert await world.take(2) == []
    await world.written(verb(Verb.RESUME, freed))
    assert [d.step.attempt for d in await world.take(2)] == [1]


async def test_a_task_cancelled_while_its_pivot_is_attempted_is_held_once_the_pivot_is_done(world: World) -> None:
    task, (charge,) = await world.opened(await world.held(), step(take=True, pivot=True))
    await world.written(verb(Verb.CANCEL, task))
    await world.report(charge)
    (loaded,) = await world.claim()
    ending = decide_next_undo(loaded, "store")
    assert isinstance(ending, Hold)
    held = (await world.advance(loaded.task, ending=ending)).task
    assert (held.state, held.undoing) == (TaskState.HELD, False)
    await refused(world, verb(Verb.COMPENSATE, held))
    again = (await world.written(verb(Verb.RESUBMIT, held))).task
    assert again.state is TaskState.PENDING


# --- races, on two connections
async def finished(world: World, task_no: int) -> TaskState:
    """Drive a task to its end as a Scheduler and an Agent would; every attempt succeeds."""
    for _ in range(20):
        loaded = await world.load(task_no)
        if loaded.task.ended_at is not None:
            return loaded.task.state
        if loaded.task.locked_by is None:
            (loaded,) = [claimed for claimed in await world.claim() if claimed.task.task_no == task_no]
        await world.take()
        loaded = await world.load(task_no)
        attempts = [one for one in loaded.steps if one.state is StepState.RUNNING]
        reports = [world.reported(one, DONE) for one in attempts]
        if reports:
            await world.advance(loaded.task, reports)
            continue
        undoing = loaded.task.state is TaskState.COMPENSATING
        ending = decide_next_undo(loaded, "store") if undoing else Process('"done"')
        assert ending is not None
        await world.advance(loaded.task, ending=ending)
    raise AssertionError("it never ended")


RACES = 100


class Race:
    """Tasks of one situation; two connections ask something of each at the same moment."""

    def __init__(self, world: World, other: StateStore) -> None:
        self.world = world
        self.other = other
        self.won: Counter[int] = Counter()
        self.first = world.store

    async def run(self, one: AnyCommand, another: AnyCommand, turn: int) -> tuple[Any, Any]:
        """Answers to both, whoever came first; in every other turn the connections change sides."""
        stores = (self.first, self.other) if turn % 2 else (self.other, self.first)
        (first,), (second,) = await asyncio.gather(stores[0].apply([one]), stores[1].apply([another]))
        self.won[0 if isinstance(first, Applied) else 1] += 1
        return first, second

    async def judge(self) -> None:
        """All histories are clean, and the tables say the same; both sides won now and then."""
        assert await history_violations(self.first) == []
        assert await disagreements(self.first) == []
        assert await broken_links(self.first) == []
        assert sum(self.won.values()) == RACES


class QuietWorld(World):
    """Without looking through the whole history after each command: that is done once, at the end."""

    async def check_chains(self) -> None:
        return


@pytest.fixture
async def race(open_sqlite: Callable[[], Awaitable[StateStore]], clock: TestClock) -> Race:
    return Race(QuietWorld(await open_sqlite(), clock), await open_sqlite())


def _last_advance(world: World, task: TaskRow, *reports: Reported) -> Advance:
    return world.advance_command(task, reports, ending=Process('"done"'))


async def _last_step_running(world: World, turn: int) -> tuple[TaskRow, Any]:
    task = await world.held(f"order-{turn}")
    task, (charge, reserve) = await world.running(task, "charge", "reserve")
    task = (await world.advance(task, [world.reported(charge)])).task
    return task, reserve


async def test_of_a_cancellation_and_the_last_advance_exactly_one_wins(race: Race) -> None:
    world = race.world
    for turn in range(RACES):
        task, reserve = await _last_step_running(world, turn)
        cancelled, ended = await race.run(
            verb(Verb.CANCEL, task), _last_advance(world, task, world.reported(reserve)), turn
        )
        state = await finished(world, task.task_no)
        if isinstance(cancelled, Applied):
            assert isinstance(ended, Refusal)
            assert (ended.verdict, state) == ("moved_on", TaskState.COMPENSATED)
            assert await _undone(world, task.task_no) == ["reserve", "charge"]
        else:
            assert isinstance(ended, Applied)
            assert (cancelled.verdict, cancelled.state, cancelled.allowed) == (
                "not_allowed",
                "processed",
                ("compensate",),
            )
            assert (state, await _undone(world, task.task_no)) == (TaskState.PROCESSED, [])
    await race.judge()


async def test_of_a_cancellation_and_the_last_report_both_are_written_and_what_was_done_is_undone(race: Race) -> None:
    world = race.world
    for turn in range(RACES):
        task, reserve = await _last_step_running(world, turn)
        await race.run(verb(Verb.CANCEL, task), world.report_command(reserve, process_no=2), turn)
        assert await finished(world, task.task_no) is TaskState.COMPENSATED
        assert await _undone(world, task.task_no) == ["reserve", "charge"]
    await race.judge()


async def test_of_two_resubmissions_exactly_one_wins_and_the_loser_is_told_who_came_first(race: Race) -> None:
    world = race.world
    for turn in range(RACES):
        task, reserve = await _last_step_running(world, turn)
        task = (await world.advance(task, [world.reported(reserve, gave_up())], ending=Hold(REDO))).task
        edited = verb(Verb.RESUBMIT, task, step=2, arguments='{"amount":1}')
        plain, other = await race.run(verb(Verb.RESUBMIT, task, by="bo"), edited, turn)
        won, lost = (plain, other) if isinstance(plain, Applied) else (other, plain)
        assert isinstance(won, Applied)
        assert isinstance(lost, Refusal)
        assert (lost.verdict, lost.state) == ("came_first", "pending")
        assert "is pending in incarnation 2, you saw incarnation 1" in lost.detail
        now = await world.load(task.task_no)
        assert (now.task.incarnation, now.steps[1].asked is None) == (2, won is plain)
        assert await finished(world, task.task_no) is TaskState.PROCESSED
    await race.judge()


async def test_of_a_compensation_and_the_end_the_task_is_undone_whoever_comes_first(race: Race) -> None:
    world = race.world
    for turn in range(RACES):
        task, reserve = await _last_step_running(world, turn)
        asked, ended = await race.run(
            verb(Verb.COMPENSATE, task), _last_advance(world, task, world.reported(reserve)), turn
        )
        assert isinstance(asked, Applied)
        assert asked.task.incarnation == (2 if isinstance(ended, Applied) else 1)
        assert await finished(world, task.task_no) is TaskState.COMPENSATED
        assert await _undone(world, task.task_no) == ["reserve", "charge"]
    await race.judge()


async def test_of_two_compensations_of_an_ended_task_exactly_one_wins(race: Race) -> None:
    world = race.world
    for turn in range(RACES):
        task, reserve = await _last_step_running(world, turn)
        task = (await world.written(_last_advance(world, task, world.reported(reserve)))).task
        answers = await race.run(verb(Verb.COMPENSATE, task), verb(Verb.COMPENSATE, task, by="bo"), turn)
        (lost,) = [answer for answer in answers if isinstance(answer, Refusal)]
        assert (lost.verdict, lost.state) == ("came_first", "compensating")
        assert await finished(world, task.task_no) is TaskState.COMPENSATED
    await race.judge()


async def _undone(world: World, task_no: int) -> list[str]:
    """What was undone, in its order: all that was done, or nothing."""
    loaded = await world.load(task_no)
    done = [s for s in loaded.steps if s.kind is StepKind.COMPENSATION and s.state is StepState.COMPLETED]
    return [one.name for one in sorted(done, key=lambda s: s.result_number or 0)]
