"""Schedules in every store: each instant is run once, whoever looks and whoever dies."""

import asyncio
from typing import Any

import msgspec
import pytest
from core_schedules import fire_command
from store_world import NOON, TASK_POLICY, World, submission

from arriero.core.schedules import build_run
from arriero.events import read_events
from arriero.events.store import EventOfSchedule
from arriero.model import MICROSECONDS, ConvoyVerb, Instant, TaskState, later
from arriero.model.answers import Refusal, Submitted
from arriero.model.commands import OperateConvoy
from arriero.model.policies import ConvoyOverrides
from arriero.model.schedules import (
    OF_PERSON,
    DeclareSchedule,
    MarkUndeclared,
    OperateSchedule,
    Overlap,
    ProblemCause,
    ReportScheduleProblem,
    RunSchedule,
    ScheduleApplied,
    ScheduleCommand,
    ScheduleDeclaration,
    ScheduleRow,
    ScheduleState,
    ScheduleVerb,
    Timing,
    read_declaration,
)
from arriero.store.task_filter import TaskFilter

HOURLY = Timing(every=3_600 * MICROSECONDS)


def declaration(**changes: Any) -> ScheduleDeclaration:
    fields: dict[str, Any] = {"workflow": "fulfil", "arguments": "{}", "policy": TASK_POLICY, "timing": HOURLY}
    return ScheduleDeclaration(**(fields | changes))


def declare_command(
    name: str = "nightly", app: str = "shop", *, if_new: bool = False, **changes: Any
) -> DeclareSchedule:
    return DeclareSchedule(actor="p", app=app, name=name, declaration=declaration(**changes), if_new=if_new)


async def changed(world: World, *commands: ScheduleCommand) -> list[ScheduleApplied]:
    answers = await world.store.change_schedules(commands)
    found = [answer for answer in answers if isinstance(answer, ScheduleApplied)]
    assert len(found) == len(answers), answers
    return found


async def refused(world: World, command: ScheduleCommand, verdict: str) -> None:
    before = await world.store.list_schedules()
    (answer,) = await world.store.change_schedules([command])
    assert isinstance(answer, Refusal)
    assert answer.verdict == verdict
    assert await world.store.list_schedules() == before


async def declared(world: World, name: str = "nightly", **changes: Any) -> ScheduleRow:
    (answer,) = await changed(world, declare_command(name, **changes))
    assert answer.row is not None
    return answer.row


def operate(verb: ScheduleVerb, name: str = "nightly") -> OperateSchedule:
    return OperateSchedule(actor="cli", verb=verb, app="shop", name=name, by="ana", reason="asked")


async def fired(world: World, row: ScheduleRow, term: int, *, is_open: bool = False) -> ScheduleRow:
    (answer,) = await changed(world, fire_command(row, world.clock(), term, is_open=is_open))
    assert answer.row is not None
    return answer.row


async def leading(world: World) -> int:
    return await world.lead(await world.process("leader"))


async def ids(world: World) -> list[str]:
    return [task.task_id for task in await world.store.list_tasks()]


async def told(world: World) -> list[EventOfSchedule]:
    rows = [row async for row in world.store.history(0)]
    return [event for row in rows for event in read_events(row.events) if isinstance(event, EventOfSchedule)]


async def test_a_declaration_is_kept_as_it_was_given(world: World) -> None:
    row = await declared(world, timing=Timing(cron="0 3 * * *", timezone="Europe/Madrid"), overlap=Overlap.QUEUE)
    assert row.state is ScheduleState.ACTIVE
    assert row == await world.store.find_schedule("shop", "nightly")
    assert read_declaration(row).timing.timezone == "Europe/Madrid"
    assert await world.store.find_schedule("travel", "nightly") is None
    assert await world.store.list_schedules() == [row]
    assert await world.store.list_schedules("travel") == []


async def test_the_same_declaration_again_writes_nothing(world: World) -> None:
    row = await declared(world)
    world.clock.move(100)
    (answer,) = await changed(world, declare_command())
    assert (answer.row, answer.is_changed, answer.is_new) == (row, False, False)
    assert len(await told(world)) == 1


async def test_a_schedule_is_found_when_it_is_due_and_not_before(world: World) -> None:
    row = await declared(world)
    early = await world.store.load_due_schedules(10)
    assert (early.found, early.next_at) == ((), later(Instant(NOON), 3_600))
    world.clock.move(3_600)
    due = await world.store.load_due_schedules(10)
    assert [(one.row, one.is_open) for one in due.found] == [(row, False)]
    assert due.next_at is None


async def test_what_is_due_longest_comes_first_and_no_more_than_was_asked_for(world: World) -> None:
    for name, hours in (("c", 3), ("a", 2), ("b", 1)):
        await declared(world, name, timing=Timing(every=hours * 3_600 * MICROSECONDS))
    world.clock.move(4 * 3_600)
    due = await world.store.load_due_schedules(2)
    assert [one.row.name for one in due.found] == ["b", "a"]


async def test_a_run_is_submitted_with_the_decision_about_it(world: World) -> None:
    row, term = await declared(world), await leading(world)
    world.clock.move(3_600)
    row = await fired(world, row, term)
    assert await ids(world) == ["shop/nightly@2023-11-14T23:13:20Z"]
    assert (row.last_task, row.runs, row.next_at) == (*await ids(world), 1, later(Instant(NOON), 7_200))
    assert (await world.store.load_due_schedules(10)).found == ()
    (task,) = await world.store.list_tasks()
    assert (task.app, task.workflow, task.state) == ("shop", "fulfil", TaskState.PENDING)


async def test_the_runs_of_a_schedule_have_its_tags_and_are_found_by_them(world: World) -> None:
    term = await world.lead(await world.process())
    row = await declared(world, tags={"region": "eu", "tenant": "acme"})
    world.clock.move(3_600)
    row = await fired(world, row, term)
    await declared(world, tags={"tenant": "globex"})
    world.clock.move(3_600)
    (row,) = await world.store.list_schedules()
    assert (row.runs, read_declaration(row).tags) == (1, {"tenant": "globex"})
    await fired(world, row, term)

    async def find(**tags: str) -> list[str | None]:
        return [task.tags for task in await world.store.list_tasks(TaskFilter(tags=tags))]

    assert await find(region="eu") == await find(tenant="acme") == ['{"region":"eu","tenant":"acme"}']
    assert await find(tenant="globex") == ['{"tenant":"globex"}']


async def test_two_leaders_that_decide_the_same_submit_one_run(world: World) -> None:
    row, term = await declared(world), await leading(world)
    world.clock.move(3_600)
    command = fire_command(row, world.clock(), term)
    await changed(world, command)
    await refused(world, command, "moved_on")
    assert len(await ids(world)) == 1


async def test_two_leaders_at_the_same_moment_submit_one_run(world: World) -> None:
    row, term = await declared(world), await leading(world)
    world.clock.move(3_600)
    command = fire_command(row, world.clock(), term)
    answers = await asyncio.gather(*(world.store.change_schedules([command]) for _ in range(3)))
    assert sorted(type(answer).__name__ for (answer,) in answers) == ["Refusal", "Refusal", "ScheduleApplied"]
    assert len(await ids(world)) == 1


async def test_a_leader_of_an_old_term_submits_nothing(world: World) -> None:
    row, term = await declared(world), await leading(world)
    world.clock.move(3_600)
    await world.lead(await world.process("next"))
    await refused(world, fire_command(row, world.clock(), term), "old_term")
    assert await ids(world) == []


async def test_a_schedule_that_was_removed_and_is_declared_again_runs_no_instant_twice(world: World) -> None:
    """As after a removal: the row forgets, the ids do not."""
    row, term = await declared(world), await leading(world)
    world.clock.move(3_600)
    command = fire_command(row, world.clock(), term)
    await changed(world, command)
    (_, again) = await changed(world, operate(ScheduleVerb.REMOVE), declare_command())
    assert again.row is not None
    assert again.row.next_at == later(world.clock(), 3_600)
    assert len(await ids(world)) == 1


async def test_an_id_that_another_task_has_opens_an_alert_until_the_next_run_is_submitted(world: World) -> None:
    await world.submit("shop/nightly@2023-11-14T23:13:20Z", workflow="another")
    row, term = await declared(world, overlap=Overlap.ALL), await leading(world)
    world.clock.move(3_600)
    row = await fired(world, row, term)
    assert (row.next_at, row.runs, row.problem_cause) == (later(Instant(NOON), 7_200), 0, "refused")
    (alert,) = await world.store.alerts()
    assert alert.reason == (
        "run shop/nightly@2023-11-14T23:13:20Z was not submitted: task 'shop/nightly@2023-11-14T23:13:20Z' exists with"
        " another workflow"
    )
    world.clock.move(3_600)
    row = await fired(world, row, term)
    assert (row.runs, row.problem) == (1, "")
    assert await world.store.alerts() == []


async def test_one_refused_schedule_of_a_batch_does_not_keep_the_others(world: World) -> None:
    rows = [await declared(world, name) for name in ("a", "b", "c")]
    term = await leading(world)
    await changed(world, operate(ScheduleVerb.PAUSE, "b"))
    world.clock.move(3_600)
    answers = await world.store.change_schedules([fire_command(row, world.clock(), term) for row in rows])
    assert [type(answer).__name__ for answer in answers] == ["ScheduleApplied", "Refusal", "ScheduleApplied"]
    assert [name.partition("@")[0] for name in await ids(world)] == ["shop/a", "shop/c"]


async def test_the_same_decision_twice_in_one_batch_is_refused_once_and_mixes_up_no_answers(world: World) -> None:
    a, b = await declared(world, "a"), await declared(world, "b")
    term = await leading(world)
    world.clock.move(3_600)
    late = later(world.clock(), 1)
    second = fire_command(a, late, term)
    stale = msgspec.structs.replace(
        second, submits=tuple(msgspec.structs.replace(run, task_id="never") for run in second.submits)
    )
    answers = await world.store.change_schedules(
        [fire_command(a, world.clock(), term), stale, fire_command(b, world.clock(), term)]
    )
    assert [type(answer).__name__ for answer in answers] == ["ScheduleApplied", "Refusal", "ScheduleApplied"]
    assert [name.partition("@")[0] for name in await ids(world)] == ["shop/a", "shop/b"]
    found = await world.store.list_schedules()
    assert [row.last_task.partition("@")[0] for row in found] == ["shop/a", "shop/b"]
    numbers = {task.task_id: task.task_no for task in await world.store.list_tasks()}
    assert [row.last_task_no for row in found] == [numbers[row.last_task] for row in found]


async def test_schedules_of_two_apps_with_one_name_have_runs_of_their_own(world: World) -> None:
    rows = [await declared(world, app=app) for app in ("shop", "travel")]
    term = await leading(world)
    world.clock.move(3_600)
    await changed(world, *(fire_command(row, world.clock(), term) for row in rows))
    assert [name.partition("@")[0] for name in await ids(world)] == ["shop/nightly", "travel/nightly"]


async def test_queued_runs_have_their_turn_one_after_the_other(world: World) -> None:
    row = await declared(world, overlap=Overlap.QUEUE, catch_up=24 * 3_600 * MICROSECONDS)
    term = await leading(world)
    world.clock.move(3 * 3_600)
    await fired(world, row, term)
    assert len(await ids(world)) == 3
    process = await world.process("worker")
    assert await world.claimed_ids(process, app="shop") == ["shop/nightly@2023-11-14T23:13:20Z"]


async def test_it_is_told_whether_the_last_run_is_open(world: World) -> None:
    row, term = await declared(world), await leading(world)
    world.clock.move(3_600)
    await fired(world, row, term)
    world.clock.move(3_600)
    (due,) = (await world.store.load_due_schedules(10)).found
    assert due.is_open
    passed = await fired(world, due.row, term, is_open=True)
    assert (passed.passed_over, passed.runs, passed.last_task) == (1, 1, due.row.last_task)


async def test_a_new_line_is_due_from_now_on_and_makes_nothing_up(world: World) -> None:
    row = await declared(world)
    world.clock.move(1_800)
    (answer,) = await changed(world, declare_command(timing=Timing(every=600 * MICROSECONDS)))
    assert answer.row is not None
    assert answer.row.next_at == later(world.clock(), 600)
    assert answer.row.revision == row.revision + 1


async def test_a_new_line_is_refused_while_an_instant_of_the_old_one_is_due_and_not_decided(world: World) -> None:
    """Whoever declares it decides about that first, in the same transaction, or the leader has done so."""
    row = await declared(world)
    world.clock.move(5 * 3_600)
    new = declare_command(timing=Timing(every=7_200 * MICROSECONDS))
    await refused(world, new, "due")
    decided = msgspec.structs.replace(fire_command(row, world.clock(), 0), term=None)
    (_, answer) = await changed(world, decided, new)
    assert answer.row is not None
    assert answer.row.next_at == later(world.clock(), 7_200)
    assert await ids(world) == ["shop/nightly@2023-11-15T03:13:20Z"]


async def test_a_new_line_of_a_paused_schedule_makes_nothing_up(world: World) -> None:
    await declared(world)
    await changed(world, operate(ScheduleVerb.PAUSE))
    world.clock.move(5 * 3_600)
    (answer,) = await changed(world, declare_command(timing=Timing(every=7_200 * MICROSECONDS)))
    assert answer.row is not None
    assert (answer.row.state, answer.row.decided_until) == (ScheduleState.PAUSED, world.clock())


async def ended(world: World, key: str) -> None:
    """As a store of an older release may hold it: there any submitter could end any convoy."""
    await world.submit("last", actor="schedule", convoy=key, end_of_sequence=True)


async def test_a_run_that_its_convoy_refuses_waits_under_one_alert_and_is_not_counted(world: World) -> None:
    row, term = await declared(world, overlap=Overlap.QUEUE), await leading(world)
    await ended(world, "schedule shop/nightly")
    for _ in range(3):
        world.clock.move(3_600)
        (due,) = (await world.store.load_due_schedules(10)).found
        row = await fired(world, due.row, term)
    assert (row.runs, row.problem_cause, row.next_at) == (0, "refused", later(Instant(NOON), 3_600))
    (alert,) = await world.store.alerts()
    assert alert.reason == row.problem
    assert row.problem.startswith(
        "run shop/nightly@2023-11-14T23:13:20Z is refused: convoy 'schedule shop/nightly' has"
    )
    assert await ids(world) == ["last"]


async def test_a_run_that_waited_is_submitted_once_it_is_accepted_and_the_alert_is_closed(world: World) -> None:
    row, term = await declared(world, overlap=Overlap.QUEUE), await leading(world)
    await ended(world, "schedule shop/nightly")
    world.clock.move(3_600)
    row = await fired(world, row, term)
    (again,) = await changed(world, declare_command(overlap=Overlap.ALL))
    assert again.row is not None
    world.clock.move(10)
    row = await fired(world, again.row, term)
    assert (row.runs, row.problem) == (1, "")
    assert await world.store.alerts() == []


async def test_nobody_but_a_schedule_may_submit_to_the_convoy_of_its_runs(world: World) -> None:
    for key in ("schedule shop/nightly", "schedule shop/not-there"):
        (answer,) = await world.store.submit([submission("mine", convoy=key)])
        assert isinstance(answer, Refusal)
        assert (answer.verdict, answer.detail) == (
            "no_place",
            f"convoy {key!r} is kept for the runs of a schedule: choose another key",
        )
    await world.submit("other", convoy="schedule of mine")


@pytest.mark.parametrize("verb", [ConvoyVerb.PARK, ConvoyVerb.SET, ConvoyVerb.MOVE_TO_HEAD])
async def test_verbs_that_could_hold_up_the_runs_of_a_schedule_are_refused_on_their_convoy(
    world: World, verb: ConvoyVerb
) -> None:
    row, term = await declared(world, overlap=Overlap.QUEUE), await leading(world)
    world.clock.move(3_600)
    await fired(world, row, term)
    (task,) = await world.store.list_tasks()
    assert task.convoy_no is not None
    policy = ConvoyOverrides(head="park") if verb is ConvoyVerb.SET else None
    fields: dict[str, Any] = {"convoy_no": task.convoy_no, "fence": None, "policy": policy, "task_no": task.task_no}
    command = OperateConvoy(actor="cli", verb=verb, by="ana", reason="x", **fields)
    await world.refused(command, "not_allowed")


async def test_a_new_argument_changes_nothing_about_when_it_is_due(world: World) -> None:
    row = await declared(world)
    world.clock.move(5 * 3_600)
    (answer,) = await changed(world, declare_command(arguments='{"a":1}'))
    assert answer.row is not None
    assert (answer.row.next_at, answer.row.anchor) == (row.next_at, row.anchor)


async def test_a_pause_survives_a_new_declaration_and_what_was_due_meanwhile_is_not_made_up(world: World) -> None:
    await declared(world)
    (paused,) = await changed(world, operate(ScheduleVerb.PAUSE))
    assert paused.row is not None
    assert (paused.row.state, paused.row.paused_by) == (ScheduleState.PAUSED, "ana")
    (again,) = await changed(world, declare_command(priority=9))
    assert again.row is not None
    assert again.row.state is ScheduleState.PAUSED
    world.clock.move(10 * 3_600)
    assert (await world.store.load_due_schedules(10)).found == ()
    (resumed,) = await changed(world, operate(ScheduleVerb.RESUME))
    assert resumed.row is not None
    assert resumed.row.next_at == later(Instant(NOON), 11 * 3_600)


async def test_verbs_that_change_nothing_are_refused(world: World) -> None:
    await refused(world, operate(ScheduleVerb.PAUSE), "unknown")
    await declared(world)
    await refused(world, operate(ScheduleVerb.RESUME), "not_allowed")
    await changed(world, operate(ScheduleVerb.PAUSE))
    await refused(world, operate(ScheduleVerb.PAUSE), "not_allowed")


async def test_a_removed_schedule_is_gone_and_its_runs_stay(world: World) -> None:
    row, term = await declared(world), await leading(world)
    world.clock.move(3_600)
    await fired(world, row, term)
    (removed,) = await changed(world, operate(ScheduleVerb.REMOVE))
    assert removed.row is None
    assert await world.store.list_schedules() == []
    assert len(await ids(world)) == 1


async def test_a_person_does_not_add_what_code_declares_nor_what_is_there_otherwise(world: World) -> None:
    await declared(world)
    await refused(world, declare_command(if_new=True, source=OF_PERSON, by="ana"), "declared")
    added = declare_command("mine", if_new=True, source=OF_PERSON, by="ana")
    await changed(world, added)
    (again,) = await changed(world, added)
    assert not again.is_changed
    await refused(world, declare_command("mine", if_new=True, source=OF_PERSON, by="ana", priority=1), "exists")


async def test_a_problem_opens_one_alert_and_closes_it_when_the_schedule_submits_again(world: World) -> None:
    row, term = await declared(world), await leading(world)
    world.clock.move(3_600)
    for _ in range(5):
        command = ReportScheduleProblem(
            actor="leader",
            app="shop",
            name="nightly",
            revision=row.revision,
            cause=ProblemCause.CODE,
            problem="no process has it",
            look_at=later(world.clock(), 10),
            term=term,
        )
        (answer,) = await changed(world, command)
        assert answer.row is not None
        row = answer.row
        world.clock.move(10)
    (alert,) = await world.store.alerts()
    assert (alert.cause, alert.step, alert.code, alert.reason) == ("schedule", "nightly", "shop", "no process has it")
    assert [event.type for event in await told(world)] == ["schedule.declared", "schedule.troubled"]
    row = await fired(world, row, term)
    assert (row.problem, row.problem_cause) == ("", "")
    assert await world.store.alerts() == []
    assert len(await ids(world)) == 1


async def test_another_problem_closes_the_alert_of_the_one_before(world: World) -> None:
    row, term = await declared(world), await leading(world)
    problems = ((ProblemCause.CODE, "no process has it", term), (ProblemCause.ARGUMENTS, "amount is missing", None))
    for cause, problem, of_term in problems:
        command = ReportScheduleProblem(
            actor="leader",
            app="shop",
            name="nightly",
            revision=row.revision,
            cause=cause,
            problem=problem,
            look_at=later(world.clock(), 10),
            term=of_term,
        )
        (answer,) = await changed(world, command)
        assert answer.row is not None
        row = answer.row
    assert [alert.reason for alert in await world.store.alerts()] == ["amount is missing"]
    assert len(await world.store.alerts(open_only=False)) == 2
    await changed(world, declare_command(arguments='{"amount":1}'))


async def test_arguments_that_do_not_fit_stop_a_schedule_until_others_are_declared(world: World) -> None:
    row = await declared(world)
    command = ReportScheduleProblem(
        actor="p",
        app="shop",
        name="nightly",
        revision=row.revision,
        cause=ProblemCause.ARGUMENTS,
        problem="amount is missing",
        look_at=None,
    )
    await changed(world, command)
    world.clock.move(7_200)
    assert (await world.store.load_due_schedules(10)).found == ()
    assert len(await world.store.alerts()) == 1
    await changed(world, declare_command(arguments='{"amount":1}'))
    assert await world.store.alerts() == []
    assert len((await world.store.load_due_schedules(10)).found) == 1


async def test_a_schedule_that_code_declares_no_more_goes_on_and_says_so_until_it_is_declared_again(
    world: World,
) -> None:
    row = await declared(world)
    (marked,) = await changed(world, MarkUndeclared(actor="p", app="shop", name="nightly", revision=row.revision))
    assert marked.row is not None
    assert (marked.row.undeclared_at, marked.row.look_at) == (world.clock(), row.look_at)
    (again,) = await changed(world, declare_command())
    assert again.row is not None
    assert again.row.undeclared_at is None


async def test_runs_that_a_person_asks_for_are_new_once(world: World) -> None:
    row = await declared(world)
    instants = tuple(later(Instant(NOON), -3_600 * hours) for hours in (3, 2, 1))
    command = RunSchedule(
        actor="cli",
        app="shop",
        name="nightly",
        by="ana",
        reason="the report was wrong",
        runs=instants,
        submits=tuple(build_run(row, instant, TASK_POLICY, 7) for instant in instants),
        is_backfill=True,
    )
    first, again = [(await changed(world, command))[0].submitted for _ in range(2)]
    assert [isinstance(one, Submitted) and one.created for one in first] == [True, True, True]
    assert [isinstance(one, Submitted) and one.created for one in again] == [False, False, False]
    found = await world.store.find_schedule("shop", "nightly")
    assert found is not None
    assert (found.runs, found.last_task, found.next_at) == (3, "", row.next_at)


async def test_a_task_that_somebody_submits_meanwhile_under_the_id_of_a_run_is_that_run(world: World) -> None:
    row, term = await declared(world), await leading(world)
    world.clock.move(3_600)
    command = fire_command(row, world.clock(), term)
    (run,) = command.submits
    answers = await asyncio.gather(world.store.submit([run]), world.store.change_schedules([command]))
    assert len(await ids(world)) == 1
    assert isinstance(answers[1][0], ScheduleApplied)


@pytest.mark.parametrize("count", [250])
async def test_many_schedules_that_are_due_at_once_are_written_in_one_transaction(world: World, count: int) -> None:
    await changed(world, *(declare_command(f"s{number:03}") for number in range(count)))
    term = await leading(world)
    world.clock.move(3_600)
    due = await world.store.load_due_schedules(1_000)
    assert len(due.found) == count
    await changed(world, *(fire_command(one.row, due.now, term) for one in due.found))
    assert len(await world.store.list_tasks(limit=1_000)) == count
    assert len([row async for row in world.store.history(0)]) < 10
