"""Forks: a new task with the results before a step of another one as copies, in one commit, and never undone by it."""

from typing import Any

import pytest
from store_checks import broken_links, disagreements
from store_world import DONE, FAILED, World, gave_up, step, timer, undo_of

from arriero.core.forks import build_fork, build_fork_submission, find_source
from arriero.core.undo import plan_undo
from arriero.model import Instant, Loaded, StepKind, StepState, TaskState, Verb
from arriero.model.answers import Refusal, Submitted
from arriero.model.commands import Fork, Operate, SendSignal, Submit
from arriero.model.moves import (
    BeginUndo,
    Compensate,
    Fired,
    Hold,
    Keep,
    NewStep,
    PlanUndo,
    Process,
    Signalled,
    Succeeded,
)
from arriero.store.contract import Purge


async def origin_of(world: World, task_id: str = "first", **changes: Any) -> Loaded:
    """A task that has charged, slept and failed to look, and is held at its third step."""
    process = await world.process(f"p-{task_id}")
    await world.submit(task_id, **({"tags": '{"tenant":"acme"}', "seed": 11, "app": "shop", "priority": 7} | changes))
    (claimed,) = await world.claim(process, app="shop")
    fire_at = world.clock.at + 5
    task, rows = await world.opened(claimed.task, step("charge", take=True), timer(fire_at), step("look", take=True))
    world.clock.to(Instant(fire_at))
    fired = Fired(rows[1].step_no, world.clock())
    delivered = (world.reported(rows[2], gave_up()), world.reported(rows[0], Succeeded('"r"')), fired)
    answer = await world.advance(task, delivered, [step("reserve", take=True)])
    (reserve,) = (one for one in answer.steps if one.name == "reserve")
    await world.advance(answer.task, [world.reported(reserve, gave_up())], ending=Hold(FAILED))
    return await world.load(task.task_no)


def fork_of(origin: Loaded, ordinal: int, task_id: str = "second", **changes: Any) -> Submit:
    fork = build_fork(origin, origin.steps[ordinal - 1], "store", by="ana", reason="again")
    assert isinstance(fork, Fork), fork
    return build_fork_submission(origin, fork, task_id)


async def forked(world: World, origin: Loaded, ordinal: int, task_id: str = "second") -> Loaded:
    (answer,) = await world.store.submit([fork_of(origin, ordinal, task_id)])
    assert isinstance(answer, Submitted)
    return await world.load(answer.task_no)


async def test_a_fork_begins_with_the_results_before_its_step_as_copies(world: World) -> None:
    origin = await origin_of(world)
    found = await forked(world, origin, 4)
    assert [
        (one.ordinal, one.kind, one.name, one.state, one.result, one.result_number, one.compensation, find_source(one))
        for one in found.steps
    ] == [
        (1, StepKind.STEP, "charge", StepState.COMPLETED, '"r"', 2, None, origin.steps[0].step_no),
        (2, StepKind.TIMER, "sleep", StepState.COMPLETED, "null", 3, None, origin.steps[1].step_no),
        (3, StepKind.STEP, "look", StepState.FAILED, None, 1, None, origin.steps[2].step_no),
    ]
    assert all(one.fence == 0 and not one.in_doubt and not one.taken for one in found.steps)
    assert found.steps[0].idempotency_key not in ("", origin.steps[0].idempotency_key)
    assert found.steps[2].failure == origin.steps[2].failure
    at = [origin.steps[0].delivered_at, found.task.submitted_at, origin.steps[2].delivered_at]
    assert [one.delivered_at for one in found.steps] == at


async def test_a_fork_has_the_arguments_policy_priority_tags_app_seed_and_begin_of_its_origin(world: World) -> None:
    origin = await origin_of(world)
    found = await forked(world, origin, 4)
    for name in ("workflow", "policy", "priority", "tags", "app", "seed", "started_at", "complete_by", "code_version"):
        assert getattr(found.task, name) == getattr(origin.task, name), name
    assert found.arguments == origin.arguments
    assert (found.task.state, found.task.opened_count, found.task.result_count, found.task.open_count) == (
        TaskState.PENDING,
        3,
        3,
        0,
    )
    assert (found.task.reply_to, found.task.parent_step, found.task.convoy_no, found.task.incarnation) == (
        None,
        None,
        None,
        1,
    )
    assert found.task.forked_from == origin.steps[3].step_no


async def test_its_history_names_its_origin_and_agrees_with_its_rows(world: World) -> None:
    origin = await origin_of(world)
    found = await forked(world, origin, 4)
    (first,) = await world.links(found.task.task_no)
    assert [event["type"] for event in first] == ["task.submitted", "task.forked", *["step.copied"] * 3]
    assert first[1] == {
        "type": "task.forked",
        "of": "first",
        "task": origin.task.task_no,
        "step": 4,
        "label": "reserve",
        "by": "ana",
        "reason": "again",
        "has_begun": True,
    }
    assert await disagreements(world.store) == []
    assert await broken_links(world.store) == []


async def test_nothing_of_the_origin_changes(world: World) -> None:
    origin = await origin_of(world)
    await forked(world, origin, 4)
    assert await world.load(origin.task.task_no) == origin


async def test_a_fork_from_the_first_step_copies_nothing(world: World) -> None:
    origin = await origin_of(world)
    found = await forked(world, origin, 1)
    assert found.steps == ()
    assert (found.task.opened_count, found.task.seed, found.task.started_at) == (0, 11, None)


async def test_the_same_fork_again_is_the_same_task_and_another_one_is_refused(world: World) -> None:
    origin = await origin_of(world)
    found = await forked(world, origin, 4)
    (again,) = await world.store.submit([fork_of(origin, 4)])
    assert again == Submitted(found.task.task_no, False)
    (another,) = await world.store.submit([fork_of(origin, 1)])
    assert another == Refusal("conflict", "task 'second' exists with another origin")
    await world.submit("plain", app="shop")
    (plain,) = await world.store.submit([fork_of(origin, 4, "plain")])
    assert plain == Refusal("conflict", "task 'plain' exists with another origin")


async def test_two_forks_of_one_batch_under_one_id_are_one_task(world: World) -> None:
    origin = await origin_of(world)
    first, again, other = await world.store.submit([fork_of(origin, 4), fork_of(origin, 4), fork_of(origin, 1)])
    assert isinstance(first, Submitted)
    assert again == Submitted(first.task_no, False)
    assert isinstance(other, Refusal)
    assert len((await world.load(first.task_no)).steps) == 3


async def test_a_fork_is_claimed_with_its_copies_and_continues(world: World) -> None:
    origin = await origin_of(world)
    found = await forked(world, origin, 4)
    process = await world.process("later")
    (claimed,) = await world.claim(process, app="shop")
    assert claimed.task.task_no == found.task.task_no
    assert claimed.steps == found.steps
    assert claimed.task.started_at == origin.task.started_at
    task, (reserve,) = await world.opened(claimed.task, step("reserve", take=True))
    assert (reserve.ordinal, reserve.idempotency_key) == (4, "reserve#1")
    answer = await world.advance(task, [world.reported(reserve)], ending=Process('"ok"'))
    assert answer.task.result_count == 4
    assert await disagreements(world.store) == []


async def test_the_undo_of_a_fork_leaves_the_copies_alone(world: World) -> None:
    origin = await origin_of(world)
    await forked(world, origin, 4)
    process = await world.process("later")
    (claimed,) = await world.claim(process, app="shop")
    task, (reserve,) = await world.opened(claimed.task, step("reserve", take=True))
    answer = await world.advance(task, [world.reported(reserve)], ending=BeginUndo(FAILED))
    loaded = await world.load(answer.task.task_no)
    plan = plan_undo(loaded, FAILED, "store")
    assert isinstance(plan, PlanUndo)
    assert [(one.name, one.undoes) for one in plan.planned] == [("reserve", reserve.step_no)]
    assert plan.failure.nothing_to_undo == ("charge",)


async def test_a_fork_that_was_undone_is_not_resubmitted(world: World) -> None:
    origin = await origin_of(world)
    found = await forked(world, origin, 4)
    process = await world.process("later")
    (claimed,) = await world.claim(process, app="shop")
    await world.advance(claimed.task, ending=Compensate(FAILED))
    task = await world.task(found.task.task_no)
    verb = Operate(actor="operator", verb=Verb.RESUBMIT, task_no=task.task_no, incarnation=1, by="ana", reason="r")
    await world.refused(verb, "not_allowed")


async def test_a_copied_failure_that_stops_a_fork_is_done_again_as_its_own_step(world: World) -> None:
    origin = await origin_of(world)
    found = await forked(world, origin, 4)
    process = await world.process("later")
    (claimed,) = await world.claim(process, app="shop")
    held = Hold(FAILED.__class__("step", "look: declined", "look", "declined", redo=(3,)))
    answer = await world.advance(claimed.task, ending=held)
    verb = Operate(actor="operator", verb=Verb.RESUBMIT, task_no=answer.task.task_no, incarnation=1, by="a", reason="r")
    await world.written(verb)
    (again,) = await world.claim(process, app="shop")
    look = again.steps[2]
    assert look.state is StepState.WITHDRAWN
    _, (reopened,) = await world.opened(again.task, step("look", take=True, reopens=look.step_no))
    assert (reopened.state, find_source(reopened)) == (StepState.RUNNING, None)
    assert reopened.compensation is not None
    assert reopened.idempotency_key == found.steps[2].idempotency_key
    assert await disagreements(world.store) == []


async def test_a_fork_of_a_fork_names_the_task_that_has_done_a_step(world: World) -> None:
    origin = await origin_of(world)
    second = await forked(world, origin, 4)
    process = await world.process("later")
    (claimed,) = await world.claim(process, app="shop")
    task, (reserve,) = await world.opened(claimed.task, step("reserve", take=True))
    answer = await world.advance(task, [world.reported(reserve)], [step("ship", take=True)])
    (ship,) = (one for one in answer.steps if one.name == "ship")
    await world.advance(answer.task, [world.reported(ship, gave_up())], ending=Hold(FAILED))
    third = await forked(world, await world.load(second.task.task_no), 5, "third")
    assert [find_source(one) for one in third.steps] == [
        *(one.step_no for one in origin.steps[:3]),
        second.steps[0].step_no + 3,
    ]
    assert await disagreements(world.store) == []


async def test_a_request_that_was_copied_is_replied_to_by_the_fork_without_an_effect(world: World) -> None:
    process = await world.process()
    number = await world.submit("first")
    (claimed,) = await world.claim(process)
    wait = NewStep(kind=StepKind.TIMER, name="request:address", key="#1")
    task, (row,) = await world.opened(claimed.task, wait)
    await world.apply(
        SendSignal(
            actor="s", task_no=number, name="request:address", signal_id="a", value="1", sent_by="", wants_reply=True
        )
    )
    task = await world.task(number)
    answer = await world.advance(task, [Signalled(row.step_no, 1, world.clock())], [step("charge", take=True)])
    (charge,) = (one for one in answer.steps if one.name == "charge")
    await world.advance(answer.task, [world.reported(charge)], ending=Keep())
    found = await forked(world, await world.load(number), 2)
    assert found.steps[0].result == '{"request":-1,"value":1}'
    (again,) = await world.claim(process)
    reply = NewStep(kind=StepKind.TIMER, name="reply:address", key="#1", arguments='{"value":1}', replies_to=-1)
    task, (replied,) = await world.opened(again.task, reply)
    assert replied.state is StepState.COMPLETED
    assert await disagreements(world.store) == []


async def test_a_fork_in_a_convoy_waits_for_its_turn_with_its_copies(world: World) -> None:
    process = await world.process()
    origin = await origin_of(world)
    await world.submit("head", app="shop", convoy="k")
    (answer,) = await world.store.submit([fork_of(origin, 4).__class__(**_fields(fork_of(origin, 4), convoy="k"))])
    assert isinstance(answer, Submitted)
    (head,) = await world.claim(process, app="shop")
    assert head.task.task_id == "head"
    await world.advance(head.task, ending=Process("1"))
    (claimed,) = await world.claim(process, app="shop")
    assert (claimed.task.task_id, len(claimed.steps)) == ("second", 3)


def _fields(command: Submit, **changes: Any) -> dict[str, Any]:
    return {name: getattr(command, name) for name in command.__struct_fields__} | changes


async def test_forks_are_listed_by_their_origin_in_the_order_of_submission(world: World) -> None:
    origin = await origin_of(world)
    for number in range(3):
        await forked(world, origin, 4, f"fork-{number}")
    await world.submit("other", app="shop")
    listed = await world.store.list_forks(origin.task.task_no, 2)
    assert [task.task_id for task in listed] == ["fork-0", "fork-1"]
    assert await world.store.list_forks(origin.task.task_no + 1, 2) == []


@pytest.mark.parametrize(("ordinal", "told"), [(4, "is being attempted now"), (1, "")])
async def test_a_step_that_is_attempted_is_not_forked_from(world: World, ordinal: int, told: str) -> None:
    process = await world.process()
    await world.submit("first")
    (claimed,) = await world.claim(process)
    task, rows = await world.running(claimed.task, "charge", "reserve", "ship")
    answer = await world.advance(task, [world.reported(rows[0])], [step("look", take=True)])
    loaded = await world.load(answer.task.task_no)
    found = build_fork(loaded, loaded.steps[ordinal - 1], "store")
    assert isinstance(found, Refusal) == bool(told)
    if isinstance(found, Refusal):
        assert told in found.detail


async def test_a_fork_of_a_branch_is_refused_while_a_step_before_it_has_no_result(world: World) -> None:
    process = await world.process()
    await world.submit("first")
    (claimed,) = await world.claim(process)
    task, rows = await world.running(claimed.task, "charge", "reserve")
    answer = await world.advance(task, [world.reported(rows[0])], [step("ship")])
    loaded = await world.load(answer.task.task_no)
    found = build_fork(loaded, loaded.steps[2], "store")
    assert isinstance(found, Refusal)
    assert "step reserve, before step ship of task 'first', is being attempted now" in found.detail


async def test_a_result_that_is_undone_is_not_copied(world: World) -> None:
    process = await world.process()
    await world.submit("first")
    (claimed,) = await world.claim(process)
    task, (charge,) = await world.running(claimed.task, "charge")
    answer = await world.advance(task, [world.reported(charge)], [step("reserve", take=True)])
    (reserve,) = (one for one in answer.steps if one.name == "reserve")
    answer = await world.advance(answer.task, [world.reported(reserve, gave_up())], ending=BeginUndo(FAILED))
    for _ in range(2):
        loaded = await world.load(answer.task.task_no)
        found = build_fork(loaded, loaded.steps[1], "store")
        assert isinstance(found, Refusal)
        assert "charge, before step reserve of task 'first', has a compensation" in found.detail
        assert isinstance(build_fork(loaded, loaded.steps[0], "store"), Fork)  # nothing is copied
        if loaded.task.state is TaskState.COMPENSATING and len(loaded.steps) == 2:
            undo = undo_of(charge, take=True)
            answer = await world.advance(answer.task, ending=PlanUndo(FAILED, (undo,)))
            (row,) = (one for one in answer.steps if one.kind is StepKind.COMPENSATION)
            answer = await world.advance(answer.task, [world.reported(row, DONE)], ending=Compensate(FAILED))


async def test_a_fork_continues_when_its_origin_is_purged(world: World) -> None:
    process = await world.process()
    await world.submit("first", app="shop")
    (claimed,) = await world.claim(process, app="shop")
    task, (charge,) = await world.running(claimed.task, "charge")
    answer = await world.advance(task, [world.reported(charge)], [step("reserve", take=True)])
    (reserve,) = (one for one in answer.steps if one.name == "reserve")
    await world.advance(answer.task, [world.reported(reserve)], ending=Process("1"))
    found = await forked(world, await world.load(task.task_no), 2)
    world.clock.move(100)
    purged = await world.store.purge(
        Purge(states=(TaskState.PROCESSED,), ended_before=world.clock()), actor="ana", limit=10
    )
    assert purged.count == 1
    assert await world.store.load_parents([charge.step_no]) == {}
    (again,) = await world.claim(process, app="shop")
    assert (again.task.task_no, again.steps) == (found.task.task_no, found.steps)
    task, (reserve,) = await world.opened(again.task, step("reserve", take=True))
    await world.advance(task, [world.reported(reserve)], ending=Process("1"))
    assert await disagreements(world.store) == []
