"""Signals, and what else happens to their task, through the public API on a virtual clock."""

import asyncio
from collections.abc import AsyncIterator, Callable

import msgspec
import pytest

import arriero
from arriero import (
    Agent,
    App,
    Request,
    Signal,
    SignalRefused,
    TaskCompensated,
    UnknownTask,
    WorkflowCall,
    testing,
    workflow,
)
from arriero.core.purging import Named
from arriero.store.contract import PurgeNamed
from arriero.store.memory import MemoryStore
from arriero.testing import World

Code = Callable[[int], WorkflowCall[str]]
bank = Agent("bank")
paid = Signal("paid", int)
ask_price = Request("ask_price", str, int)


@bank.step
async def charge(number: int) -> int:
    return number


@workflow
async def sell(number: int) -> str:
    """One step before the wait, so that the code of the next task of a key runs ahead to it."""
    await charge(number)
    return f"{number}: {await paid.wait()} EUR"


@workflow
async def sell_first(number: int) -> str:
    """The wait comes first: the commit that brings the turn opens it."""
    return f"{number}: {await paid.wait()} EUR"


@workflow(complete_within=60)
async def sell_soon(number: int) -> str:
    await charge(number)
    return f"{number}: {await paid.wait()} EUR"


@workflow
async def shows_price() -> int:
    request = await ask_price.receive()
    await charge(1)
    request.reply(7)
    return await paid.wait()


@workflow
async def publishes() -> int:
    arriero.publish({"page": 1})
    amount = await paid.wait()
    arriero.publish({"page": 2})
    await paid.wait()
    return amount


@pytest.fixture
async def world() -> AsyncIterator[World]:
    app = App("shop", agents=[bank], workflows=[sell, sell_first, sell_soon, shows_price, publishes])
    async with testing.running(app) as world:
        yield world


@pytest.mark.parametrize("code", [sell, sell_first])
async def test_tasks_that_wait_in_a_convoy_get_the_signals_that_came_early(world: World, code: Code) -> None:
    tasks = [await world.app.submit(code(number), task_id=f"t{number}", convoy="key") for number in range(4)]
    for number in (3, 1):
        await tasks[number].send(paid(number))
    await world.clock.advance(5)
    for number in (0, 2):
        await tasks[number].send(paid(number))
        await world.clock.advance(5)
    assert await asyncio.gather(*(task.result() for task in tasks)) == [
        f"{number}: {number} EUR" for number in range(4)
    ]


@pytest.mark.parametrize("code", [sell, sell_first])
async def test_a_signal_that_comes_after_the_code_of_the_next_task_has_run_ahead_is_not_lost(
    world: World, code: Code
) -> None:
    """The third task's code has run while the second was driven."""
    tasks = [await world.app.submit(code(number), task_id=f"t{number}", convoy="key") for number in range(3)]
    await tasks[0].send(paid(0))
    await world.clock.advance(5)
    assert await tasks[0].result() == "0: 0 EUR"
    await tasks[2].send(paid(2))
    await tasks[1].send(paid(1))
    assert await asyncio.gather(*(task.result() for task in tasks[1:])) == ["1: 1 EUR", "2: 2 EUR"]


async def test_a_task_whose_limit_passes_while_a_signal_is_in_its_inbox_is_undone_and_receives_no_other(
    world: World,
) -> None:
    task = await world.app.submit(sell_soon(1))
    await task.send(Signal("other", int)(5))
    await world.clock.advance(59)
    await task.send(Signal("other", int)(6))
    await world.clock.advance(5)
    with pytest.raises(TaskCompensated):
        await task.result()
    with pytest.raises(SignalRefused) as refused:
        await task.send(paid(1))
    assert refused.value.because == "undone"


async def test_a_signal_that_comes_with_the_last_instant_before_the_limit_is_enough(world: World) -> None:
    task = await world.app.submit(sell_soon(1))
    await world.clock.advance(59.9)
    await task.send(paid(1))
    assert await task.result() == "1: 1 EUR"


async def test_a_request_gets_the_same_reply_after_its_task_was_cancelled_and_undone(world: World) -> None:
    task = await world.app.submit(shows_price())
    await world.clock.advance(5)
    assert await task.request(ask_price("tea"), request_id="r", timeout=5) == 7
    await task.cancel(by="ana", reason="test")
    with pytest.raises(TaskCompensated):
        await task.result()
    assert await task.request(ask_price("tea"), request_id="r", timeout=5) == 7


async def test_who_waits_for_a_reply_of_a_purged_task_is_refused_by_name(world: World) -> None:
    task = await world.app.submit(sell(1), task_id="t1")
    store = world.app.session.store
    asking = asyncio.ensure_future(task.request(ask_price("tea"), timeout=3600))
    await world.clock.advance(5)
    await task.cancel(by="ana", reason="test")
    with pytest.raises((SignalRefused, UnknownTask), match="'t1'"):
        await asking
    named: Named = "task"
    which = PurgeNamed(what=named, name="t1", ended_before=store.now() + 1)
    assert (await store.purge_named(which, actor="janitor", limit=10)).is_done
    with pytest.raises(UnknownTask, match="no task 't1'"):
        await task.request(ask_price("tea"), timeout=5)


async def test_a_published_value_that_cannot_be_read_is_named_in_the_view_and_stops_nothing(world: World) -> None:
    task = await world.app.submit(publishes())
    await world.clock.advance(5)
    assert (await task.view()).published == {"page": 1}
    store = world.app.session.store
    assert isinstance(store, MemoryStore)
    rows = store.published_rows[1]
    rows[0] = msgspec.structs.replace(rows[0], value="{")
    view = await task.view()
    assert (view.published, view.published_at) == (None, None)
    assert view.unreadable == ("column value of table published (row 1, 0)",)
    await task.send(paid(1))
    await world.clock.advance(5)
    view = await task.view()
    assert (view.published, view.unreadable) == ({"page": 2}, ())
    await task.send(paid(2))
    assert await task.result() == 1
