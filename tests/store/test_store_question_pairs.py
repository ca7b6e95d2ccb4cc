"""Questions and what else happens to their task: turns of convoys, ledgers, limits, snoozes, assignment, restores."""

from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from store_checks import broken_links, disagreements, history_violations
from store_world import FAILED, TestClock, World
from test_store_ledgers import Ledgers, entry
from test_store_questions import answering, asked, open_alerts, question
from test_store_restore import Kept, kept, opened

from arriero.model import StepState, TaskState, Verb
from arriero.model.answers import APPROVAL_NEEDED
from arriero.model.commands import AssignApp, EndByLimit, Operate
from arriero.model.moves import BeginUndo, Compensate, Hold, Process, PutDown

__all__ = ["kept", "opened"]  # fixtures

KEY = "customer-7"
ASKED = [("question", "question:finance", "finance")]


@pytest.fixture
async def _sound(world: World) -> AsyncIterator[None]:
    yield
    assert await history_violations(world.store) == []
    assert await disagreements(world.store) == []
    assert await broken_links(world.store) == []


async def operate(world: World, task_no: int, verb: Verb, **changes: Any) -> None:
    task = await world.task(task_no)
    fields = {"actor": "o", "verb": verb, "task_no": task_no, "incarnation": task.incarnation, "by": "ana"}
    await world.written(Operate(reason="asked", store_id="s", **(fields | changes)))


# --- another App
@pytest.mark.usefixtures("_sound")
async def test_a_question_stays_open_under_its_alert_when_its_task_moves_to_another_app(world: World) -> None:
    task_no = await world.submit(app="shop")
    (loaded,) = await world.claim(app="shop")
    task = (await world.advance(loaded.task, opened=[question(operators=2)], ending=PutDown(None))).task
    await world.refused(answering(task, by="ana"), APPROVAL_NEEDED)
    before = await world.store.alerts()
    await world.written(
        AssignApp(actor="o", task_no=task_no, from_app="shop", app="travel", by="ana", reason="renamed")
    )
    assert await world.store.alerts() == before
    (listed,) = await world.store.questions()
    assert (listed.app, listed.ordinal) == ("travel", 1)
    await world.written(answering(await world.task(task_no), by="bo"))
    assert await open_alerts(world) == []
    assert await world.claimed_ids(app="shop") == []
    (loaded,) = await world.claim(app="travel")
    assert loaded.steps[0].result == "true"


# --- restore
async def test_a_question_that_was_answered_after_the_backup_is_open_again_after_a_restore(
    kept: Kept, opened: Callable[[], Any], clock: TestClock
) -> None:
    lost_time = World(await opened(), clock)
    task = await asked(lost_time)
    (alert,) = await lost_time.store.take_alerts(10, 5)
    await lost_time.store.settle_alert(alert.no, alert.attempts, ("log",), None, "")
    await lost_time.store.close()
    kept.save()

    await lost_time.store.open()
    await lost_time.written(answering(task))
    await asked(lost_time, question("legal"), task_id="order-2")
    await lost_time.store.close()
    kept.bring_back()

    restored = World(await opened(), clock)
    assert await restored.store.new_epoch("operator") == 2
    assert await open_alerts(restored) == ASKED
    (again,) = await restored.store.take_alerts(10, 5)  # the sinks have heard that it was closed
    assert (again.no, again.told, again.closed_at) == (alert.no, (), None)
    (listed,) = await restored.store.questions()
    assert (listed.task_id, listed.of) == ("order-1", "finance")
    await restored.written(answering(task, by="bo", result="false"))
    assert await open_alerts(restored) == []
    new = await restored.store.register("of the new epoch", 3600.0)
    (loaded,) = await restored.claim(new)
    assert (loaded.steps[0].state, loaded.steps[0].result) == (StepState.COMPLETED, "false")
    later = await asked(restored, question("legal"), task_id="order-2", process_no=new)
    assert [row.of for row in await restored.store.questions()] == ["legal"]
    await restored.written(answering(later))
    assert await history_violations(restored.store) == []
    assert await disagreements(restored.store) == []
    assert await broken_links(restored.store) == []


# --- convoys and ledgers
@pytest.mark.usefixtures("_sound")
async def test_a_task_that_asks_keeps_the_turn_of_its_convoy_until_it_ends(world: World) -> None:
    await world.process()
    first, second = [await world.submit(name, convoy=KEY) for name in ("first", "second")]
    (head,) = await world.claim()
    task = (await world.advance(head.task, opened=[question()], ending=PutDown(None))).task
    assert await world.claimed_ids() == []
    await world.written(answering(task))
    (head,) = await world.claim()
    assert (head.task.task_no, head.steps[0].result) == (first, "true")
    await world.advance(head.task, ending=Process('"done"'))
    (loaded,) = await world.claim()
    assert loaded.task.task_no == second


@pytest.mark.usefixtures("_sound")
async def test_cancelling_a_task_that_asks_gives_the_turn_of_its_convoy_to_the_next(world: World) -> None:
    await world.process()
    for name in ("first", "second"):
        await world.submit(name, convoy=KEY)
    (head,) = await world.claim()
    await world.advance(head.task, opened=[question()], ending=PutDown(None))
    await operate(world, head.task.task_no, Verb.CANCEL)
    assert await world.store.questions() == []
    (undone,) = await world.claim()
    assert undone.task.state is TaskState.COMPENSATING
    assert await open_alerts(world) == []


@pytest.mark.usefixtures("_sound")
async def test_a_ledger_stays_open_for_its_task_that_asks(world: World) -> None:
    ledgers = Ledgers(world)
    ledger = await ledgers.submitted(entry(1, "order-1"))
    (loaded,) = await world.claim()
    task = (await world.advance(loaded.task, opened=[question()], ending=PutDown(None))).task
    assert await world.store.find_open_of_ledgers([ledger.ledger_no]) == {ledger.ledger_no: task.task_no}
    await world.written(answering(task))
    (loaded,) = await world.claim()
    await world.advance(loaded.task, ending=Process("1"))
    assert await world.store.find_open_of_ledgers([ledger.ledger_no]) == {}


# --- limits and verbs
@pytest.mark.parametrize("ending", [Hold(FAILED), BeginUndo(FAILED)], ids=["held", "undone"])
@pytest.mark.usefixtures("_sound")
async def test_a_question_is_closed_when_the_limit_of_its_task_passes(
    world: World, clock: TestClock, ending: Hold | BeginUndo
) -> None:
    await asked(world, complete_within=60.0)
    clock.move(60)
    (loaded,) = (await world.store.load_overdue(10, 5.0)).past_limit
    fields = {name: getattr(loaded.task, name) for name in ("task_no", "fence", "revision", "state")}
    await world.written(EndByLimit(actor="leader", ending=ending, term=await world.lead(1), **fields))
    assert await world.store.questions() == []
    assert [alert for alert in await open_alerts(world) if alert in ASKED] == []
    await world.refused(answering(await world.task(1)), "not_allowed")


@pytest.mark.usefixtures("_sound")
async def test_a_snoozed_task_is_answered_and_begins_when_its_snooze_ends(world: World, clock: TestClock) -> None:
    task = await asked(world)
    await operate(world, task.task_no, Verb.SNOOZE, within=30.0)
    await world.written(answering(await world.task(task.task_no)))
    assert await open_alerts(world) == []
    assert await world.claimed_ids() == []
    clock.move(30)
    (loaded,) = await world.claim()
    assert loaded.steps[0].result == "true"


@pytest.mark.usefixtures("_sound")
async def test_a_second_life_asks_under_an_alert_of_its_own_and_the_answer_of_the_first_is_not_for_it(
    world: World,
) -> None:
    task = await asked(world)
    old = answering(task)
    await operate(world, task.task_no, Verb.CANCEL)
    (undoing,) = await world.claim()
    await world.advance(undoing.task, ending=Compensate(FAILED))
    await operate(world, task.task_no, Verb.RESUBMIT)
    (loaded,) = await world.claim()
    await world.advance(loaded.task, opened=[question()], ending=PutDown(None))
    assert await open_alerts(world) == ASKED
    assert len(await world.store.alerts(open_only=False)) == 2
    await world.refused(old, "came_first")
    await world.refused(answering(await world.task(task.task_no), step=1), "not_allowed")
    await world.written(answering(await world.task(task.task_no), step=2))
