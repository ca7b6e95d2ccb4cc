"""``ConvoyPolicy(handle_batch=)``: one task handles what many of its convoy were submitted with."""

from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest

from arriero import (
    Agent,
    App,
    ConvoyPolicy,
    DefinitionError,
    InvalidInput,
    Permanent,
    TaskCompensated,
    TaskExists,
    TaskHeld,
    Undo,
    VerbRefused,
    testing,
    workflow,
)
from arriero.client.session import load_task
from arriero.client.task_explanation import load_explanation
from arriero.testing import World

WHO: dict[str, Any] = {"by": "ana", "reason": "it is known"}
ledger = Agent("ledger")


@ledger.step
async def post(lines: list[int]) -> int:
    return len(lines)


@post.compensation
async def take_back(undo: Undo[int], lines: list[int]) -> None: ...


@ledger.step
async def confirm(total: int) -> None: ...


@workflow(convoy_policy=ConvoyPolicy(handle_batch=3, batch_within=60))
async def post_lines(lines: list[int]) -> list[int]:
    await post(sorted(lines))
    await confirm(sum(lines))
    return lines


@workflow
async def post_later(lines: list[int]) -> list[int]:
    return await post_lines(lines)


@workflow(convoy_policy=ConvoyPolicy(handle_batch=2, batch_within=60))
async def stumble(lines: list[int]) -> None:
    await confirm(sum(lines))
    raise RuntimeError("a bug")


@pytest.fixture
async def world() -> AsyncIterator[World]:
    app = App("bank", workflows=[post_lines, post_later, stumble], agents=[ledger])
    async with testing.running(app) as world:
        world.answers(post, *[0] * 9)
        yield world


async def send(world: World, *values: int, **options: Any) -> list[Any]:
    world.answers(confirm, *[None] * 3)
    return [
        await world.app.submit(post_lines([value]), convoy="account-7", task_id=f"line-{value}", **options)
        for value in values
    ]


async def test_each_message_is_answered_with_the_result_of_its_batch(world: World) -> None:
    tasks = await send(world, 1, 2, 3, 4)
    assert [await task.result() for task in tasks[:3]] == [[1, 2, 3]] * 3
    assert await tasks[3].result() == [4]  # once its time is over


async def test_a_submission_with_several_elements_is_one_message(world: World) -> None:
    world.answers(confirm, None)
    first = await world.app.submit(post_lines([1, 2]), convoy="account-7")
    await world.app.submit(post_lines([]), convoy="account-7")
    await world.app.submit(post_lines([3]), convoy="account-7")
    assert await first.result() == [1, 2, 3]


async def test_keys_gather_batches_of_their_own(world: World) -> None:
    world.answers(confirm, None, None)
    tasks = [
        await world.app.submit(post_lines([number]), convoy=f"account-{number % 2}", task_id=f"t{number}")
        for number in range(6)
    ]
    assert await tasks[0].result() == [0, 2, 4]
    assert await tasks[5].result() == [1, 3, 5]


async def test_a_batch_that_fails_is_undone_as_a_whole(world: World) -> None:
    world.answers(confirm, Permanent("the account is closed", code="closed"))
    tasks = await send(world, 1, 2, 3)
    for task in tasks:
        with pytest.raises(TaskCompensated) as failed:
            await task.result()
        assert failed.value.code == "closed"
    assert [undone.step for undone in world.undone()] == ["post"]


async def test_a_message_is_cancelled_alone_before_its_batch_and_not_in_it(world: World) -> None:
    tasks = await send(world, 1, 2)
    await tasks[1].cancel(**WHO)
    await send(world, 3, 4)
    assert await tasks[0].result() == [1, 3, 4]
    with pytest.raises(TaskCompensated):
        await tasks[1].result()
    with pytest.raises(VerbRefused, match="batch"):
        await world.app.task("line-3").compensate(**WHO)


async def test_a_paused_workflow_gathers_no_batch_until_it_is_resumed(world: World) -> None:
    await world.app.workflow_named("post_lines").pause(**WHO)
    tasks = await send(world, 1, 2, 3)
    await world.clock.advance(600)
    assert (await tasks[0].view()).state == "pending"
    await world.app.workflow_named("post_lines").resume(**WHO)
    assert await tasks[0].result() == [1, 2, 3]


async def test_a_message_id_answers_with_its_task_and_another_body_is_refused(world: World) -> None:
    (first, *_) = await send(world, 1, 2, 3)
    assert await first.result() == [1, 2, 3]
    (again,) = await send(world, 1)
    assert await again.result() == [1, 2, 3]
    with pytest.raises(TaskExists):
        await world.app.submit(post_lines([5]), convoy="account-7", task_id="line-1")


async def test_views_and_explanations_say_which_task_handles_a_message(world: World) -> None:
    tasks = await send(world, 1, 2)
    await world.clock.advance(1)
    assert (await tasks[0].view()).batch is None
    gathers = await explained(world, "line-1")
    assert [reason for reason in gathers if "it begins with 3 messages, or" in reason]
    await send(world, 3)
    assert await tasks[0].result() == [1, 2, 3]
    assert [(await world.app.task(f"line-{number}").view()).batch for number in (1, 2, 3)] == ["line-1"] * 3
    assert "its message is in the batch of task line-1" in (await explained(world, "line-2"))[0]


async def test_a_message_of_a_held_batch_leads_to_the_task_that_handles_it(world: World) -> None:
    world.answers(confirm, None)
    for number in (1, 2):
        await world.app.submit(stumble([number]), convoy="account-8", task_id=f"m{number}")
    await world.clock.advance(1)
    assert await explained(world, "m2") == [
        "its message is in the batch of task m1; it ends as that task ends; `arriero task explain m1`"
    ]
    with pytest.raises(InvalidInput, match="is in the batch of task number 1, which has the steps: fork that one"):
        await world.app.task("m2").fork("confirm", task_id="again")


async def explained(world: World, task_id: str) -> list[str]:
    session = world.app.session
    _, explanation, *_ = await load_explanation(session.store, await load_task(session, task_id))
    return [reason.says for reason in explanation.reasons]


async def test_a_submission_without_a_key_is_refused(world: World) -> None:
    with pytest.raises(InvalidInput, match="convoy="):
        await world.app.submit(post_lines([1]))


async def test_a_child_task_that_handles_batches_holds_its_parent(world: World) -> None:
    task = await world.app.submit(post_later([1]))
    with pytest.raises(TaskHeld, match="cannot be a child"):
        await task.result()


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"handle_batch": 0}, "from 1 to 1000"),
        ({"handle_batch": 1_001}, "from 1 to 1000"),
        ({"handle_batch": True}, "from 1 to 1000"),
        ({"handle_batch": 5, "batch_within": -1}, "batch_within is -1"),
        ({"handle_batch": 5, "batch_within": 86_401}, "at most a day"),
        ({"batch_within": 5}, "give handle_batch="),
    ],
)
def test_a_policy_that_makes_no_sense_is_refused(given: dict[str, Any], says: str) -> None:
    with pytest.raises(DefinitionError, match=says):
        ConvoyPolicy(**given)


def test_a_workflow_that_handles_batches_takes_one_list() -> None:
    batches = workflow(convoy_policy=ConvoyPolicy(handle_batch=5))

    async def one(line: int) -> None: ...
    async def two(lines: list[int], account: str) -> None: ...
    async def none() -> None: ...
    async def optional(lines: list[int] = []) -> None: ...  # noqa: B006
    async def many(lines: Sequence[int]) -> None: ...

    for function in (one, two, none, optional):
        with pytest.raises(DefinitionError, match="must take one parameter that is a list"):
            batches(function)
    batches(many)
