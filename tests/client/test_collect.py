"""``arriero.collect``: several values of a signal in one wait, by number or by time."""

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest

import arriero
from arriero import App, Request, Signal, TaskHeld, testing, workflow
from arriero.client.session import load_task
from arriero.client.signals import build_send
from arriero.client.task_explanation import load_explanation
from arriero.errors import ArrieroError
from arriero.testing import World

paid = Signal("paid", int)
stopped = Signal("stopped", str)
address = Request("address", str, int)
WHO: dict[str, Any] = {"by": "ana", "reason": "it is known"}


@workflow
async def in_batches(count: int, within: float | None) -> list[list[int]]:
    batches: list[list[int]] = []
    while len(batches) < 2:
        batches.append(await arriero.collect(paid, count=count, within=within))
    return batches


@workflow
async def then_one(count: int) -> tuple[list[int], int]:
    return await arriero.collect(paid, count=count), await paid.wait()


@workflow
async def beside(count: int) -> tuple[list[int], int, str]:
    values, one, why = await asyncio.gather(arriero.collect(paid, count=count), paid.wait(), stopped.wait())
    return values, one, why


@workflow
async def for_a_while() -> list[int]:
    return await arriero.collect(paid, count=1_000, within=timedelta(hours=1))


@workflow
async def badly(count: Any, within: float | None, of_request: bool) -> list[int]:
    signal: Any = address if of_request else paid
    found: list[int] = await arriero.collect(signal, count=count, within=within)
    return found


@pytest.fixture
async def world() -> AsyncIterator[World]:
    workflows: list[Any] = [in_batches, then_one, beside, for_a_while, badly]
    async with testing.running(App("tills", workflows=workflows)) as world:
        yield world


async def send(task: arriero.Task[Any], *values: int) -> None:
    for value in values:
        await task.send(paid(value), signal_id=f"s{value}")


async def test_what_comes_is_returned_in_its_order_in_batches_of_the_count(world: World) -> None:
    task = await world.app.submit(in_batches(3, None))
    await send(task, 1, 2)
    await world.clock.advance(86_400)
    assert (await task.view()).state == "processing"
    await send(task, 3, 4, 5, 6)
    assert await task.result() == [[1, 2, 3], [4, 5, 6]]


async def test_what_came_in_the_time_is_returned_when_it_is_over(world: World) -> None:
    task = await world.app.submit(in_batches(100, 60))
    await send(task, 1, 2)
    await world.clock.advance(61)
    await send(task, 3)
    assert await task.result() == [[1, 2], [3]]


async def test_nothing_in_the_time_is_an_empty_list_and_no_failure(world: World) -> None:
    assert await world.app.execute(for_a_while()) == []


async def test_what_came_before_the_code_waits_is_taken_too(world: World) -> None:
    task = await world.app.submit(in_batches(2, 60), delay=10)
    await send(task, 1, 2, 3)
    assert await task.result() == [[1, 2], [3]]


async def test_what_is_left_is_for_the_next_wait_of_the_name(world: World) -> None:
    task = await world.app.submit(then_one(2))
    await send(task, 1, 2, 3)
    assert await task.result() == ([1, 2], 3)


async def test_it_joins_gather_and_keeps_what_it_is_first_for(world: World) -> None:
    task = await world.app.submit(beside(2))
    await task.send(stopped("evening"))
    await send(task, 1)
    assert (await task.view()).state == "processing"
    await send(task, 2, 3)
    assert await task.result() == ([1, 2], 3, "evening")


async def test_a_value_that_cannot_be_read_is_set_aside_and_another_one_takes_its_place(world: World) -> None:
    task = await world.app.submit(then_one(2))
    await send(task, 1)
    await world.app.session.store.apply([build_send(world.app.session, 1, "signal:paid", '"odd"', "odd", "")])
    await send(task, 2, 3)
    assert await task.result() == ([1, 2], 3)


async def test_an_undo_and_a_new_life_collect_again(world: World) -> None:
    task = await world.app.submit(in_batches(2, None))
    await send(task, 1, 2)
    await world.clock.advance(1)
    await task.cancel(**WHO)
    await world.clock.advance(1)
    await task.resubmit(**WHO)
    await send(task, 3, 4, 5, 6)
    assert await task.result() == [[3, 4], [5, 6]]


@pytest.mark.parametrize(
    ("count", "within", "of_request", "says"),
    [
        (0, None, False, "count is 0; it must be a whole number from 1 to 1,000"),
        (1_001, None, False, "count is 1001"),
        (True, None, False, "count is True"),
        ("3", None, False, "count is '3'"),
        (2, -1.0, False, "within"),
        (2, None, True, "must be of the type Signal"),
    ],
)
async def test_an_unfit_argument_holds_the_task_and_names_it(
    world: World, count: Any, within: float | None, of_request: bool, says: str
) -> None:
    with pytest.raises(TaskHeld) as held:
        await world.app.execute(badly(count, within, of_request))
    assert says in held.value.reason


async def test_outside_of_a_workflow_it_says_what_to_do() -> None:
    with pytest.raises(ArrieroError, match=r"arriero\.collect works only inside a workflow"):
        await arriero.collect(paid, count=2)


async def test_explain_says_how_many_have_come_and_how_to_send_more(world: World) -> None:
    task = await world.app.submit(in_batches(3, None), task_id="till-1")
    await send(task, 1, 2)
    await world.clock.advance(5)
    store = world.app.session.store
    _, explanation, *_ = await load_explanation(store, await load_task(world.app.session, "till-1"))
    reasons = {reason.kind: reason.says for reason in explanation.reasons}
    assert reasons["waits_for_signal"].startswith(
        "it waits for 3 values of signal paid, of which 2 came, without a limit"
    )
    assert "arriero task send till-1 paid JSON" in reasons["waits_for_signal"]
    assert "inbox" not in reasons
