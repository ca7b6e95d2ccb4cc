"""Questions to operators: each has one open alert while its wait is open, and is answered once."""

from typing import Any

import msgspec
import pytest
from store_checks import history_violations
from store_world import NOON, World

from arriero.errors import UnreadableRow
from arriero.model import Instant, StepKind, StepState, TaskRow, TaskState, Verb
from arriero.model.answers import APPROVAL_NEEDED
from arriero.model.commands import Operate
from arriero.model.failures import TaskFailure
from arriero.model.moves import BeginUndo, Fired, Hold, NewStep, Process, PutDown
from arriero.model.questions import AskedQuestion, describe_question
from arriero.model.tokens import Reach
from arriero.store.contract import Purge

FAILED = TaskFailure("bug", "line 3")
TEXT = "Pay out 9,000 EUR?"


def question(
    of: str = "finance", key: str = "#1", until: float | None = None, operators: int = 1, text: str = TEXT
) -> NewStep:
    """``until``: seconds after noon."""
    asked = msgspec.json.encode(AskedQuestion(text, msgspec.Raw(b'{"type":"boolean"}'), operators)).decode()
    fire_at = None if until is None else Instant(NOON + round(until * 1_000_000))
    return NewStep(kind=StepKind.TIMER, name=f"question:{of}", key=key, arguments=asked, fire_at=fire_at)


def answering(task: TaskRow, step: int | None = 1, by: str = "ana", result: str = "true", **changes: Any) -> Operate:
    return Operate(
        actor="operator",
        verb=Verb.ANSWER,
        task_no=task.task_no,
        incarnation=task.incarnation,
        by=by,
        reason="seen the invoice",
        step=step,
        result=result,
        **changes,
    )


async def open_alerts(world: World) -> list[tuple[str, str, str]]:
    return [(alert.cause, alert.step, alert.code) for alert in await world.store.alerts()]


async def asked(world: World, *questions: NewStep, task_id: str = "order-1", **submitted: Any) -> TaskRow:
    """A task that is put down while it waits for answers."""
    task = await world.held(task_id, **submitted)
    return (await world.advance(task, opened=questions or [question()], ending=PutDown(None))).task


async def test_a_question_is_listed_with_its_task_and_has_an_alert_while_it_waits(world: World) -> None:
    task = await asked(world, question(until=60))
    assert await open_alerts(world) == [("question", "question:finance", "finance")]
    (alert,) = await world.store.alerts()
    assert (alert.task_id, alert.reason, alert.closed_at, alert.next_at) == ("order-1", TEXT, None, world.clock())
    (row,) = await world.store.questions()
    assert (row.task_id, row.workflow, row.of, row.ordinal, row.key) == ("order-1", "fulfil", "finance", 1, "#1")
    assert (row.opened_at, row.not_before) == (NOON, NOON + 60_000_000)
    assert (await world.task(task.task_no)).state is TaskState.PROCESSING
    assert await world.claimed_ids() == []  # nobody has anything to do for it


async def test_an_answer_is_the_result_of_the_wait_wakes_the_task_and_closes_the_alert(world: World) -> None:
    task = await asked(world)
    world.clock.move(5)
    await world.written(answering(task))
    assert await open_alerts(world) == [] and await world.store.questions() == []
    (loaded,) = await world.claim()
    (step,) = loaded.steps
    assert (step.state, step.result, step.result_number, step.delivered_at) == (
        StepState.COMPLETED,
        "true",
        1,
        world.clock(),
    )
    assert loaded.task.open_count == 0
    (edit,) = await world.store.edits(task.task_no)
    assert (edit.what, edit.after, edit.edited_by, edit.reason) == ("result", "true", "ana", "seen the invoice")


async def test_the_second_of_two_answers_is_refused_and_changes_nothing(world: World) -> None:
    task = await asked(world)
    await world.written(answering(task, result="true"))
    before = await world.rows()
    await world.refused(answering(task, by="bo", result="false"), "not_allowed")
    assert await world.rows() == before


async def test_of_two_answers_in_one_transaction_the_first_counts(world: World) -> None:
    task = await asked(world)
    await world.store.apply([answering(task, by="ana", result="true"), answering(task, by="bo", result="false")])
    assert (await world.load(task.task_no)).steps[0].result == "true"


async def test_two_persons_must_give_the_same_answer_where_the_question_says_so(world: World) -> None:
    task = await asked(world, question(operators=2))
    await world.refused(answering(task, by="ana", result="true"), APPROVAL_NEEDED)
    await world.refused(answering(task, by="ana", result="true"), APPROVAL_NEEDED)
    await world.refused(answering(task, by="bo", result="false"), APPROVAL_NEEDED)
    assert await open_alerts(world) == [("question", "question:finance", "finance")]
    await world.written(answering(task, by="cy", result="true"))
    assert (await world.load(task.task_no)).steps[0].result == "true"
    assert (await world.events(task.task_no))[-2]["approved_by"] == ["ana"]


async def test_an_answer_of_another_question_and_a_note_end_no_approval_of_an_answer(world: World) -> None:
    task = await asked(world, question(operators=2), question("legal", operators=2))
    for step in (1, 2):
        await world.refused(answering(task, step=step, by="ana"), APPROVAL_NEEDED)
    await world.written(answering(task, step=1, by="bo"))
    tag = msgspec.structs.replace(answering(task, step=None), verb=Verb.TAG, result=None, tags='{"team":"a"}')
    await world.written(tag)
    await world.written(answering(task, step=2, by="bo"))
    assert [step.result for step in (await world.load(task.task_no)).steps] == ["true", "true"]
    assert await history_violations(world.store) == []


async def test_another_verb_ends_the_approvals_of_an_answer(world: World) -> None:
    task = await asked(world, question(operators=2))
    await world.refused(answering(task, by="ana"), APPROVAL_NEEDED)
    pause = msgspec.structs.replace(answering(task, step=None), verb=Verb.PAUSE, result=None)
    await world.written(pause)
    await world.refused(answering(task, by="bo"), APPROVAL_NEEDED)
    await world.written(answering(task, by="ana"))


async def test_a_question_whose_row_cannot_be_read_is_shown_as_it_stands_and_not_answered(world: World) -> None:
    damaged = msgspec.structs.replace(question(), arguments='{"question":5}')
    task = await asked(world, damaged)
    assert [alert.reason for alert in await world.store.alerts()] == ['{"question":5}']
    assert [row.arguments for row in await world.store.questions()] == ['{"question":5}']
    (answer,) = await world.store.apply([answering(task)])
    assert isinstance(answer, UnreadableRow) and "column arguments of table step" in str(answer)
    assert (await world.load(task.task_no)).steps[0].state is StepState.PENDING


async def test_open_questions_are_not_among_the_open_alerts_that_are_counted(world: World) -> None:
    await asked(world)
    assert (await world.store.measure_backlog()).alerts == 0


async def test_an_answer_after_its_time_is_refused_also_before_the_timer_fires(world: World) -> None:
    task = await world.held()
    due = PutDown(Instant(NOON + 60_000_000))
    task = (await world.advance(task, opened=[question(until=60)], ending=due)).task
    world.clock.move(60)
    await world.refused(answering(task), "not_allowed")
    assert await open_alerts(world) == [("question", "question:finance", "finance")]
    (held,) = await world.claim()
    await world.advance(held.task, delivered=[Fired(held.steps[0].step_no, world.clock())], ending=PutDown(None))
    assert await open_alerts(world) == []
    assert (await world.load(task.task_no)).steps[0].result is None
    await world.refused(answering(held.task), "not_allowed")


async def test_what_was_decided_before_the_answer_is_refused(world: World) -> None:
    task = await world.held()
    task = (await world.advance(task, opened=[question(until=60)])).task
    await world.written(answering(task))
    fired = Fired((await world.load(task.task_no)).steps[0].step_no, world.clock())
    await world.refused(world.advance_command(task, delivered=[fired]), "moved_on")


@pytest.mark.parametrize("ending", [BeginUndo(FAILED), Hold(FAILED), Process("1")], ids=["undone", "held", "processed"])
async def test_no_question_stays_open_after_the_code_has_ended(world: World, ending: Any) -> None:
    task = await world.held()
    task = (await world.advance(task, opened=[question(), question(key="#2")])).task
    await world.advance(task, ending=ending)
    assert await world.store.questions() == []
    assert [cause for cause, _, _ in await open_alerts(world)] == ["bug"] * isinstance(ending, Hold)
    await world.refused(answering(await world.task(task.task_no)), "not_allowed")


async def test_cancelling_the_task_closes_its_questions(world: World) -> None:
    task = await asked(world)
    cancel = msgspec.structs.replace(answering(task, step=None, result="null"), verb=Verb.CANCEL, result=None)
    await world.written(cancel)
    assert await open_alerts(world) == [] and await world.store.questions() == []


async def test_a_resubmitted_task_asks_again_under_a_new_alert(world: World) -> None:
    task = await world.held()
    task = (await world.advance(task, opened=[question()])).task
    await world.advance(task, ending=Hold(FAILED))
    again = msgspec.structs.replace(
        answering(await world.task(task.task_no), step=None), verb=Verb.RESUBMIT, result=None
    )
    await world.written(again)
    (loaded,) = await world.claim()
    reopened = msgspec.structs.replace(question(), reopens=loaded.steps[0].step_no)
    await world.advance(loaded.task, opened=[reopened], ending=PutDown(None))
    assert await open_alerts(world) == [("question", "question:finance", "finance")]
    assert [alert.closed_at is None for alert in await world.store.alerts(open_only=False)] == [False, False, True]
    await world.written(answering(await world.task(task.task_no)))
    assert await open_alerts(world) == []


async def test_questions_are_listed_in_pages_by_who_is_asked_and_within_a_reach(world: World) -> None:
    await asked(world, question("finance"), question("legal"), task_id="order-1")
    await asked(world, question("finance"), task_id="order-2", workflow="refund")
    everyone = await world.store.questions()
    assert [(row.task_id, row.of) for row in everyone] == [
        ("order-1", "finance"),
        ("order-1", "legal"),
        ("order-2", "finance"),
    ]
    assert [row.task_id for row in await world.store.questions(of="finance")] == ["order-1", "order-2"]
    assert await world.store.questions(after=everyone[0].no, limit=1) == everyone[1:2]
    assert [row.of for row in await world.store.questions(within=Reach(workflows=("refund",)))] == ["finance"]
    assert await world.store.questions(within=Reach(apps=("another",))) == []


async def test_alerts_are_listed_without_questions_if_asked(world: World) -> None:
    task = await asked(world)
    await world.advance(await world.held("order-2"), ending=Hold(FAILED))
    assert [alert.cause for alert in await world.store.alerts()] == ["question", "bug"]
    assert [alert.task_id for alert in await world.store.alerts(questions=False)] == ["order-2"]
    assert (await world.task(task.task_no)).state is TaskState.PROCESSING


async def test_the_submitter_is_sent_a_status_with_the_question(world: World) -> None:
    await asked(world, reply_to="q")
    status = (await world.store.load_statuses("q", 10))[-1]
    assert (status.kind, msgspec.json.decode(status.data)) == ("asked", {"of": "finance", "question": TEXT})


async def test_two_questions_of_a_task_are_answered_apart(world: World) -> None:
    task = await asked(world, question(), question(key="#2", text="And the rest?"))
    await world.written(answering(task, step=2, result="false"))
    (left,) = await world.store.questions()
    assert left.ordinal == 1
    steps = (await world.load(task.task_no)).steps
    assert [step.result for step in steps] == [None, "false"]
    assert describe_question(steps[1]) == {"of": "finance", "question": "And the rest?"}


async def test_a_wait_for_a_signal_is_not_answered_and_a_question_is_not_in_doubt(world: World) -> None:
    task = await asked(world, NewStep(kind=StepKind.TIMER, name="signal:approved", key="#1"), question())
    await world.refused(answering(task, step=1), "not_allowed")
    await world.refused(answering(task, step=2, result="null", did_not_happen=True), "not_allowed")
    await world.refused(answering(task, step=9), "not_allowed")
    await world.refused(answering(task, step=None), "not_allowed")


async def test_a_paused_task_is_answered_and_stays_paused(world: World) -> None:
    task = await asked(world)
    pause = msgspec.structs.replace(answering(task, step=None), verb=Verb.PAUSE, result=None)
    await world.written(pause)
    await world.written(answering(task))
    assert (await world.load(task.task_no)).steps[0].result == "true"
    assert (await world.task(task.task_no)).paused_at is not None
    assert await world.claimed_ids() == []


async def test_a_purge_removes_the_alerts_of_questions(world: World) -> None:
    task = await world.held()
    task = (await world.advance(task, opened=[question()])).task
    await world.advance(task, ending=Process("1"))
    for alert in await world.store.take_alerts(10, 5):
        await world.store.settle_alert(alert.no, alert.attempts, ("log",), None, "")
    world.clock.move(100)
    await world.store.purge(Purge(states=(TaskState.PROCESSED,), ended_before=world.clock()), actor="janitor", limit=10)
    assert await world.store.alerts(open_only=False) == []
