"""A task whose code ran before its submission begins in the commit that brings it."""

from typing import Any

import pytest
from store_world import COMPLETE_WITHIN, DONE, World, kinds, step, submission, timer

from arriero.core.undo import build_idempotency_key
from arriero.model import Instant, StepKind, StepState, TaskState, later
from arriero.model.answers import Submitted
from arriero.model.commands import Advance, Start
from arriero.model.moves import NewStep, Process

REQUEST = step(take=True)


async def started(world: World, *opened: NewStep, process_no: int = 1, **changes: Any) -> Submitted:
    start = Start(process_no, opened or (REQUEST,))
    (answer,) = await world.store.submit([submission(**(changes | {"start": start}))])
    assert isinstance(answer, Submitted)
    await world.check_chains()
    return answer


async def is_left_for_claims(world: World, answer: Submitted) -> None:
    """The task stands there as any other that was submitted."""
    assert answer.created
    assert answer.begun is None
    loaded = await world.load(answer.task_no)
    assert (loaded.task.state, loaded.task.locked_by, loaded.steps) == (TaskState.PENDING, None, ())
    assert kinds(await world.events(answer.task_no)) in (["task.submitted"], ["task.submitted", "convoy.placed"])


async def test_it_is_held_and_its_first_request_runs_with_the_commit_that_brings_it(world: World) -> None:
    await world.process()
    answer = await started(world)
    assert answer.begun is not None
    assert answer.begun.task == await world.load(answer.task_no)
    task = answer.begun.task.task
    assert (task.state, task.locked_by, task.fence, task.started_at) == (TaskState.PROCESSING, 1, 1, world.clock.at)
    (request,) = answer.begun.task.steps
    assert (request.state, request.locked_by, request.fence) == (StepState.RUNNING, 1, 1)
    assert request.complete_by == later(Instant(world.clock.at), COMPLETE_WITHIN)
    (dispatch,) = answer.begun.dispatches
    assert (dispatch.step, dispatch.task_id, dispatch.now) == (request, "order-1", world.clock.at)
    (link,) = await world.links(answer.task_no)
    assert kinds(link) == ["task.submitted", "task.claimed", "step.opened", "step.dispatched"]


async def test_its_keys_are_those_that_its_first_advance_would_have_made(world: World) -> None:
    await world.process()
    answer = await started(world, REQUEST, step("ship", take=True), timer(world.clock.at + 5))
    assert answer.begun is not None
    keys = [one.idempotency_key for one in answer.begun.task.steps]
    expected = [
        build_idempotency_key(world.store.store_id, answer.task_no, 1, StepKind.STEP, name, "#1")
        for name in ("charge", "ship")
    ]
    assert keys == [*expected, ""]


async def test_it_goes_on_to_its_end_as_any_other(world: World) -> None:
    await world.process()
    answer = await started(world)
    assert answer.begun is not None
    (request,) = answer.begun.task.steps
    ended = await world.advance(answer.begun.task.task, [world.reported(request, DONE)], ending=Process('"done"'))
    assert ended.task.state is TaskState.PROCESSED


async def test_requests_without_a_place_wait_for_any_agent(world: World) -> None:
    await world.process()
    answer = await started(world, step())
    assert answer.begun is not None
    assert answer.begun.dispatches == ()
    (taken,) = await world.take()
    assert taken.step.task_no == answer.task_no


async def test_nobody_else_can_claim_it_and_it_is_freed_with_its_process(world: World) -> None:
    await world.process()
    answer = await started(world)
    await world.process("p2")
    assert await world.claim(2) == []
    await world.lose(1)
    loaded = await world.load(answer.task_no)
    freed = await world.written(world.free_command(loaded.task, loaded.steps))
    assert freed.task.locked_by is None
    (claimed,) = await world.claim(2)
    assert claimed.task.task_no == answer.task_no


async def test_a_reply_queue_is_told_of_its_receipt_and_its_start(world: World) -> None:
    await world.process()
    await started(world, reply_to="answers")
    assert [status.kind for status in await world.store.load_statuses("answers", 10)] == ["received", "started"]


async def test_until_its_process_writes_again_it_is_among_its_news(world: World) -> None:
    """Should the answer be lost, the process finds what it holds."""
    await world.process()
    answer = await started(world)
    assert answer.begun is not None
    assert [task_no for task_no, _ in await world.store.load_news(1)] == [answer.task_no]
    await world.advance(answer.begun.task.task)
    assert await world.store.load_news(1) == []


async def test_a_known_id_is_answered_with_what_stands_there_and_begins_nothing(world: World) -> None:
    await world.process()
    first = await started(world)
    again = await started(world)
    assert (again.task_no, again.created, again.begun) == (first.task_no, False, None)
    assert len((await world.load(first.task_no)).steps) == 1


async def test_of_one_id_twice_in_one_batch_one_begins(world: World) -> None:
    await world.process()
    command = submission(start=Start(1, (REQUEST,)))
    first, second = await world.store.submit([command, command])
    assert isinstance(first, Submitted)
    assert isinstance(second, Submitted)
    assert first.begun is not None
    assert (second.task_no, second.created, second.begun) == (first.task_no, False, None)
    assert len((await world.load(first.task_no)).steps) == 1


async def test_beside_others_each_gets_its_own(world: World) -> None:
    await world.process()
    batch = [
        submission("a"),
        submission("b", start=Start(1, (REQUEST,))),
        submission("c", start=Start(1, (step("ship"),))),
    ]
    answers = await world.store.submit(batch)
    states = [(await world.load(answer.task_no)).task.state for answer in answers if isinstance(answer, Submitted)]
    assert states == [TaskState.PENDING, TaskState.PROCESSING, TaskState.PROCESSING]
    assert await world.claimed_ids() == ["a"]


@pytest.mark.parametrize("changes", [{"delay": 5.0}, {"convoy": "customer-7"}], ids=["delay", "convoy"])
async def test_what_is_not_due_or_waits_for_its_turn_does_not_begin(world: World, changes: dict[str, Any]) -> None:
    await world.process()
    answer = await started(world, **changes)
    assert answer.created
    assert answer.begun is None
    assert (await world.task(answer.task_no)).state is TaskState.PENDING


async def test_a_retired_process_begins_nothing(world: World) -> None:
    await world.process()
    await world.lose(1)
    await is_left_for_claims(world, await started(world))


async def test_a_process_that_nobody_knows_begins_nothing(world: World) -> None:
    await world.process()
    await is_left_for_claims(world, await started(world, process_no=7))


async def test_a_process_of_an_earlier_epoch_begins_nothing(world: World) -> None:
    await world.process()
    await world.store.new_epoch("operator")
    await is_left_for_claims(world, await started(world))


async def test_a_store_without_a_process_begins_nothing(world: World) -> None:
    await is_left_for_claims(world, await started(world))


async def test_its_writes_are_guarded_as_any_holder_s(world: World) -> None:
    await world.process()
    answer = await started(world)
    assert answer.begun is not None
    task = answer.begun.task.task
    stale: Advance = world.advance_command(task, revision=task.revision - 1)
    await world.refused(stale, "moved_on")
