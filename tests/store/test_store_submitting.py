"""Submission: durable, idempotent by task id, due when it should be."""

from typing import Any

import pytest
from store_world import ALIKE, KNOWN, NOON, OTHERWISE, TestClock, World, kinds, submission

from arriero.model import TaskState
from arriero.model.answers import Refusal, Submitted


async def test_a_submitted_task_is_pending_free_and_due_at_once(world: World) -> None:
    loaded = await world.load(await world.submit("order-1"))
    task = loaded.task
    assert (task.task_id, task.workflow, task.state) == ("order-1", "fulfil", TaskState.PENDING)
    assert (task.not_before, task.submitted_at, task.complete_by) == (NOON, NOON, None)
    assert (task.locked_by, task.fence, task.revision, task.incarnation) == (None, 0, 0, 1)
    assert (loaded.arguments, loaded.steps) == ('{"pieces":2}', ())


async def test_a_delay_moves_the_due_time_and_the_limit_counts_from_there(world: World) -> None:
    task = await world.task(await world.submit(delay=60.0, complete_within=10.0))
    assert task.not_before == NOON + 60_000_000
    assert task.complete_by == NOON + 70_000_000


async def test_the_same_id_and_body_again_is_the_same_task_whatever_became_of_it(world: World) -> None:
    first = await world.submit("order-1")
    await world.claim()
    before = await world.rows()
    (again,) = await world.store.submit([submission("order-1", priority=9, seed=1)])
    assert again == Submitted(first, False)
    assert await world.rows() == before


@pytest.mark.parametrize("changes", [{"body_hash": "another"}, {"workflow": "another"}])
async def test_another_body_or_workflow_under_a_known_id_is_refused(world: World, changes: dict[str, str]) -> None:
    await world.submit("order-1")
    before = await world.rows()
    (answer,) = await world.store.submit([submission("order-1", **changes)])
    assert isinstance(answer, Refusal)
    assert answer.verdict == "conflict"
    assert ("workflow" if "workflow" in changes else "body") in answer.detail
    assert await world.rows() == before


@pytest.mark.parametrize(("task_id", "changes", "what"), OTHERWISE, ids=str)
async def test_a_known_id_with_another_part_is_refused_with_one_text_and_leaves_nothing(
    world: World, task_id: str, changes: dict[str, Any], what: str
) -> None:
    for known, part in KNOWN.items():
        await world.submit(known, **part)
    before = await world.rows()
    other = submission(task_id, **(KNOWN[task_id] | changes))
    assert await world.store.submit([other]) == [Refusal("conflict", f"task {task_id!r} exists with another {what}")]
    assert await world.rows() == before
    assert await world.store.find_convoy("never used") is None


@pytest.mark.parametrize("task_id", KNOWN)
async def test_a_known_id_with_the_same_parts_is_the_same_task_whatever_else_is_asked(
    world: World, task_id: str
) -> None:
    task_no = [await world.submit(known, **part) for known, part in KNOWN.items()][list(KNOWN).index(task_id)]
    for changes in ALIKE:
        (answer,) = await world.store.submit([submission(task_id, **(KNOWN[task_id] | changes))])
        assert answer == Submitted(task_no, False)


async def test_a_new_key_is_used_by_what_is_new_also_beside_a_known_id_that_names_it(world: World) -> None:
    await world.submit("known")
    await world.submit("last", convoy="over", end_of_sequence=True)
    refused = submission("twice", convoy="over")
    batch = [submission("known", convoy="x"), submission("new", convoy="x"), refused, submission("twice", convoy="y")]
    answers = await world.store.submit(batch)
    assert [isinstance(answer, Submitted) for answer in answers] == [False, True, False, True]
    for key, task_id in (("x", "new"), ("y", "twice")):
        found = await world.store.find_convoy(key)
        assert found is not None
        assert [task.task_id for task in found.members] == [task_id]


async def test_a_batch_is_answered_in_order_also_where_it_repeats_itself(world: World) -> None:
    batch = [submission("a"), submission("b"), submission("a"), submission("b", body_hash="x"), submission("c")]
    answers = await world.store.submit(batch)
    assert answers[:3] == [Submitted(1, True), Submitted(2, True), Submitted(1, False)]
    assert isinstance(answers[3], Refusal)
    assert answers[4] == Submitted(3, True)
    await world.check_chains()


async def test_an_empty_batch_is_answered_with_nothing(world: World) -> None:
    assert await world.store.submit([]) == []
    assert await world.store.apply([]) == []


async def test_the_first_link_of_a_task_says_who_submitted_what(world: World, clock: TestClock) -> None:
    task_no = await world.submit("order-1", delay=1.0, complete_within=2.0)
    (row,) = [row async for row in world.store.history(task_no)]
    assert (row.task_id, row.link, row.actor, row.at) == ("order-1", 1, "client", clock.at)
    (event,) = await world.events(task_no)
    assert kinds([event]) == ["task.submitted"]
    assert (event["workflow"], event["body"], event["priority"]) == ("fulfil", "body", 5)
    assert (event["not_before"], event["complete_by"]) == (NOON + 1_000_000, NOON + 3_000_000)


async def test_ids_may_hold_any_text(world: World) -> None:
    names = ["ä", "🫏", "'; DROP TABLE arriero_task; --", "a b", "%", "x" * 255]
    for name in names:
        await world.submit(name)
    assert [task.task_id for task in await world.store.list_tasks()] == names
    for name in names:
        found = await world.store.find(name)
        assert found is not None
        assert found.task.task_id == name
