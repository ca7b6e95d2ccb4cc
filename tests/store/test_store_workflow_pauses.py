"""Workflows that are paused for new tasks, on every store."""

from typing import Any

from store_world import FAILED, TestClock, World, step, submission

from arriero.core.ledger_batches import LedgerBatch, LedgerEntry
from arriero.events import decode_event_fields
from arriero.model import WAITS_FOR_WORKFLOW, TaskState, Turn, Verb
from arriero.model.answers import WORKFLOW_PAUSED, Refusal, Submitted
from arriero.model.commands import AssignApp, HandOver, Operate, Start
from arriero.model.moves import Hold, Process, PutDown
from arriero.model.workflow_pauses import OperateWorkflow, PauseState, WorkflowPauseRow

SHOP: dict[str, Any] = {"app": "shop"}


def asked(state: PauseState, **changes: Any) -> OperateWorkflow:
    fields = {"actor": "client", "app": "shop", "workflow": "fulfil", "by": "ana", "reason": "the release is wrong"}
    return OperateWorkflow(state=state, **(fields | changes))


async def pause(world: World, *, refuse: bool = False, **changes: Any) -> WorkflowPauseRow:
    state = PauseState.REFUSING if refuse else PauseState.PAUSED
    answer = await world.store.change_workflow_pause(asked(state, **changes))
    assert isinstance(answer, WorkflowPauseRow), answer
    return answer


async def resume(world: World, **changes: Any) -> None:
    answer = await world.store.change_workflow_pause(asked(PauseState.RESUMING, **changes))
    assert isinstance(answer, WorkflowPauseRow), answer
    while await world.store.let_waiting_begin("shop", answer.workflow, 2, "upkeep"):
        pass


async def claimed(world: World, **changes: Any) -> list[str]:
    return await world.claimed_ids(**({"app": "shop"} | changes))


async def operate(world: World, task_no: int, verb: Verb, **changes: Any) -> None:
    task = await world.task(task_no)
    fields = {"actor": "ana", "verb": verb, "task_no": task_no, "incarnation": task.incarnation, "by": "ana"}
    await world.written(Operate(reason="test", **(fields | changes)))


async def test_new_tasks_of_a_paused_workflow_wait_and_begin_in_their_order_once_it_is_resumed(
    world: World, clock: TestClock
) -> None:
    for name in ("before-1", "before-2", "before-3"):
        await world.submit(name, **SHOP)
    await pause(world)
    await world.submit("meanwhile", **SHOP)
    await world.submit("of-another-app", app="travel")
    await world.submit("of-another-workflow", workflow="refund", **SHOP)
    assert await claimed(world, workflows=("fulfil", "refund")) == ["of-another-workflow"]
    assert await claimed(world, app="travel") == ["of-another-app"]
    due = await world.store.due(["fulfil"], [], "shop")
    assert not due.tasks  # so no process asks for them again
    clock.move(5)
    await resume(world)
    assert await world.store.list_workflow_pauses() == []
    assert await claimed(world) == ["before-1", "before-2", "before-3", "meanwhile"]


async def test_a_claim_that_names_a_new_task_of_a_paused_workflow_lets_it_wait(world: World) -> None:
    task_no = await world.submit(**SHOP)
    await pause(world)
    assert await claimed(world, only=(task_no,)) == []
    assert (await world.task(task_no)).not_before == WAITS_FOR_WORKFLOW
    await resume(world)
    assert await claimed(world, only=(task_no,)) == ["order-1"]


async def test_a_task_that_waits_says_so_in_its_history(world: World) -> None:
    task_no = await world.submit(**SHOP)
    await pause(world)
    assert await claimed(world) == []
    (event,) = await world.last_events(task_no)
    assert (event["type"], event["why"]) == ("task.released", "workflow_paused")
    assert (await world.task(task_no)).not_before == WAITS_FOR_WORKFLOW
    await resume(world)
    (event,) = await world.last_events(task_no)
    assert (event["type"], event["why"]) == ("task.released", "workflow_resumed")


async def test_what_has_begun_goes_on(world: World) -> None:
    await world.submit(**SHOP)
    (loaded,) = await world.claim(app="shop")
    task = loaded.task
    await world.advance(task, opened=(step(),), ending=PutDown(world.clock.at))
    await pause(world)
    assert await claimed(world) == ["order-1"]


async def test_a_resubmitted_task_of_a_paused_workflow_runs(world: World) -> None:
    task_no = await world.submit(**SHOP)
    (loaded,) = await world.claim(app="shop")
    await world.advance(loaded.task, ending=Hold(FAILED))
    await pause(world)
    await operate(world, task_no, Verb.RESUBMIT)
    assert await claimed(world) == ["order-1"]


async def test_a_start_with_the_submission_begins_no_task_of_a_paused_workflow(world: World) -> None:
    process = await world.process()
    await pause(world)
    (answer,) = await world.store.submit([submission(start=Start(process, (step(),)), **SHOP)])
    assert isinstance(answer, Submitted)
    assert answer.begun is None
    assert (await world.task(answer.task_no)).state is TaskState.PENDING


async def test_the_next_task_of_a_convoy_waits_with_its_turn(world: World) -> None:
    await world.process()
    first = await world.submit("first", convoy="k", **SHOP)
    second = await world.submit("second", convoy="k", **SHOP)
    (loaded,) = await world.claim(app="shop")
    await pause(world)
    answer = await world.advance(
        loaded.task,
        ending=Process('"done"'),
        hand_over=HandOver(("fulfil",), app="shop"),
        convoy_no=loaded.task.convoy_no,
    )
    assert answer.task.task_no == first
    assert answer.next is None
    assert await claimed(world) == []
    task = await world.task(second)
    assert (task.turn, task.not_before) == (Turn.OPEN, WAITS_FOR_WORKFLOW)
    await resume(world)
    assert await claimed(world) == ["second"]


async def test_a_workflow_that_refuses_names_who_paused_it_and_what_resumes_it(world: World, clock: TestClock) -> None:
    known = await world.submit("known", **SHOP)
    await pause(world, refuse=True)
    (again, refused, other) = await world.store.submit(
        [submission("known", **SHOP), submission("new", **SHOP), submission("other", app="travel")]
    )
    assert again == Submitted(known, False)
    assert isinstance(other, Submitted)
    assert isinstance(refused, Refusal)
    assert refused.verdict == WORKFLOW_PAUSED
    for said in ("'fulfil'", "'shop'", "ana", "2023-11-14", "the release is wrong", "arriero workflow resume fulfil"):
        assert said in refused.detail
    assert await world.store.find("new") is None
    assert await claimed(world) == []
    await resume(world)
    assert await claimed(world) == ["known"]
    assert await world.submit("new", **SHOP)


async def test_a_refused_submission_makes_no_place_in_a_convoy(world: World) -> None:
    await pause(world, refuse=True)
    (refused,) = await world.store.submit([submission("new", convoy="k", **SHOP)])
    assert isinstance(refused, Refusal)
    await resume(world)
    number = await world.submit("later", convoy="k", **SHOP)
    assert (await world.task(number)).place == 1


async def test_entries_of_a_ledger_are_refused_and_accepted_alike(world: World) -> None:
    await pause(world, refuse=True)
    ledger = await world.store.begin_ledger("day-1")
    entry = LedgerEntry(line=1, digest="d", submit=submission("day-1:1", **SHOP))
    written = await world.store.write_ledger(
        LedgerBatch(ledger_no=ledger.ledger_no, after=0, entries=(entry,), refuses=True)
    )
    assert written.refused is not None
    assert "ana" in written.refused[1]
    assert written.verdict == WORKFLOW_PAUSED


async def test_who_pauses_twice_or_resumes_what_runs_is_refused_by_name(world: World) -> None:
    await pause(world)
    again = await world.store.change_workflow_pause(asked(PauseState.PAUSED, by="bo"))
    assert isinstance(again, Refusal)
    assert "by ana: the release is wrong" in again.detail
    assert (await pause(world, refuse=True)).state is PauseState.REFUSING  # the other way is no repetition
    await resume(world)
    again = await world.store.change_workflow_pause(asked(PauseState.RESUMING))
    assert isinstance(again, Refusal)
    assert again.state == "active"


async def test_a_workflow_that_is_paused_again_while_its_tasks_are_let_begin_keeps_the_others(world: World) -> None:
    for number in range(3):
        await world.submit(f"order-{number}", **SHOP)
    await pause(world)
    assert await claimed(world) == []
    await world.store.change_workflow_pause(asked(PauseState.RESUMING))
    assert await world.store.let_waiting_begin("shop", "fulfil", 1, "upkeep")
    await pause(world)
    assert not await world.store.let_waiting_begin("shop", "fulfil", 1, "upkeep")
    assert await claimed(world) == []
    await resume(world)
    assert len(await claimed(world)) == 3


async def test_a_delay_and_a_snooze_hold_after_the_resume(world: World, clock: TestClock) -> None:
    delayed = await world.submit("delayed", delay=60.0, **SHOP)
    snoozed = await world.submit("snoozed", **SHOP)
    await pause(world)
    assert await claimed(world) == []
    await operate(world, snoozed, Verb.SNOOZE, within=30.0)
    assert await claimed(world) == []
    await resume(world)
    assert await claimed(world) == []
    clock.move(31)
    assert await claimed(world) == ["snoozed"]
    assert (await world.task(delayed)).state is TaskState.PENDING
    clock.move(30)
    assert await claimed(world) == ["delayed"]


async def test_a_task_that_an_operator_paused_while_it_waited_begins_once_both_are_resumed(world: World) -> None:
    task_no = await world.submit(**SHOP)
    await pause(world)
    assert await claimed(world) == []
    await operate(world, task_no, Verb.PAUSE)
    await resume(world)
    assert await claimed(world) == []
    await operate(world, task_no, Verb.RESUME)
    assert await claimed(world) == ["order-1"]


async def test_a_task_that_waits_can_be_cancelled(world: World) -> None:
    task_no = await world.submit(**SHOP)
    await pause(world)
    assert await claimed(world) == []
    await operate(world, task_no, Verb.CANCEL)
    (loaded,) = await world.claim(app="shop")  # for its undo
    assert loaded.task.state is TaskState.COMPENSATING
    await resume(world)


async def test_a_task_that_is_given_to_another_app_follows_the_pauses_there(world: World) -> None:
    task_no = await world.submit(**SHOP)
    await pause(world)
    assert await claimed(world) == []
    await world.written(
        AssignApp(actor="ana", task_no=task_no, app="travel", from_app="shop", by="ana", reason="a new name")
    )
    assert await claimed(world, app="travel") == ["order-1"]


async def test_a_task_that_names_no_app_waits_for_the_pause_of_any(world: World) -> None:
    await world.submit()
    await pause(world)
    assert await claimed(world) == []
    await resume(world)
    assert await claimed(world) == ["order-1"]


async def test_a_claim_that_meets_a_backlog_finds_the_others_behind_it(world: World) -> None:
    for number in range(5):
        await world.submit(f"order-{number}", **SHOP)
    await world.submit("other", workflow="refund", **SHOP)
    await pause(world)
    assert await claimed(world, workflows=("fulfil", "refund"), limit=1) == ["other"]


async def test_the_store_s_history_says_who_paused_it(world: World) -> None:
    await pause(world, refuse=True)
    await resume(world, by="bo", reason="fixed")
    rows = [row async for row in world.store.history(0)]
    said = [event for row in rows for event in decode_event_fields(row) if event["type"].startswith("workflow.")]
    assert said == [
        {
            "type": "workflow.paused",
            "app": "shop",
            "workflow": "fulfil",
            "by": "ana",
            "reason": "the release is wrong",
            "refuses": True,
        },
        {"type": "workflow.resumed", "app": "shop", "workflow": "fulfil", "by": "bo", "reason": "fixed"},
    ]
