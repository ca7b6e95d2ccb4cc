"""Callbacks through the public API, on a virtual clock."""

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, cast
from unittest.mock import AsyncMock

import msgspec
import pydantic
import pytest
from runtime_world import QUICK, Machine, until, within

from arriero import (
    Agent,
    App,
    ArrieroError,
    Callback,
    CallbackRefused,
    DefinitionError,
    InvalidInput,
    Permanent,
    Signal,
    SignalTimeout,
    Supervision,
    TaskCompensated,
    TaskHeld,
    callback,
    publish,
    sleep,
    testing,
    workflow,
)
from arriero.model import TaskState
from arriero.model.signals import VALUE_BYTES_MAX
from arriero.store.contract import Purge
from arriero.store.sqlite.store import SqliteStore
from arriero.testing import World

NO_CODE = AsyncMock(return_value=None)  # as at a server without the code
bank = Agent("bank")
seen: list[Callback[Any]] = []
undone: list[str] = []
mended: list[bool] = []


@dataclass
class BankReceipt:
    id: str
    amount: int = 0


@dataclass
class Order:
    number: int
    done: Callback[BankReceipt]


@bank.step
async def pay(number: int, done: Callback[BankReceipt]) -> int:
    seen.append(done)
    return number


@pay.compensation
async def refund(number: int, done: Callback[BankReceipt]) -> None:
    undone.append(done.token)


@bank.step
async def pay_order(order: Order) -> None:
    seen.append(order.done)


@bank.step
def pay_in_thread(number: int, done: Callback[BankReceipt], others: list[Callback[str]]) -> int:
    seen.extend([done, *others])
    return len(seen)


@workflow
async def order(number: int) -> str:
    receipt = callback(BankReceipt, within=timedelta(hours=1))
    await pay(number, receipt)
    return (await receipt).id


@workflow
async def patient(number: int) -> str:
    receipt = callback(BankReceipt, name="receipt", within=number)
    await pay_order(Order(number, receipt))
    try:
        return (await receipt).id
    except SignalTimeout as error:
        return f"{error.code}: {error}"


@workflow
async def impatient(number: int) -> str:
    receipt = callback(BankReceipt, within=number)
    await pay(number, receipt)
    with contextlib.suppress(SignalTimeout):
        return (await receipt).id
    await sleep(600)
    return "without it"


@workflow
async def forgetful() -> str:
    """It returns before the service has answered."""
    await pay(1, callback(BankReceipt))
    return "done"


@workflow
async def misuses(number: int) -> str:
    receipt = callback(BankReceipt)
    return [lambda: receipt.url, lambda: receipt.token, lambda: callback(str, name="a#1").name][number]()


@workflow
async def several() -> list[str]:
    first, second, word = callback(BankReceipt), callback(BankReceipt), callback(str)
    await pay_in_thread(1, first, [word])
    await pay(2, second)
    async with asyncio.TaskGroup() as group:
        waits = [group.create_task(first), group.create_task(second)]
    (text,) = await asyncio.gather(word)
    return [*(one.result().id for one in waits), text]


@workflow
async def raced() -> str:
    receipt = callback(BankReceipt)
    await pay(1, receipt)
    waiting = asyncio.ensure_future(receipt)
    pause = asyncio.ensure_future(sleep(60))
    await asyncio.wait({waiting, pause}, return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()
    return (await receipt).id


@workflow
async def undone_later() -> None:
    receipt = callback(BankReceipt)
    await pay(1, receipt)
    await receipt
    await sleep(60)
    raise Permanent("no stock")


@workflow
async def held_first(number: int) -> str:
    receipt = callback(BankReceipt)
    await pay(1, receipt)
    await stuck()
    return (await receipt).id


@bank.step(effect_free=True, supervision=Supervision(then="hold"))
async def stuck() -> None:
    if not mended:
        raise Permanent("not yet")


@pytest.fixture
async def world() -> AsyncIterator[World]:
    seen.clear()
    undone.clear()
    mended.clear()
    app = App(
        "shop",
        agents=[bank],
        workflows=[order, patient, impatient, forgetful, misuses, several, raced, undone_later, held_first],
    )
    async with testing.running(app) as world:
        yield world


async def begun(world: World, call: Any, task_id: str = "order-1") -> Any:
    """A task that has passed its callbacks on."""
    task = await world.app.submit(call, task_id=task_id)
    await world.clock.advance(5)
    return task


async def refused_because(world: World, token: str, value: Any = "r-1") -> str:
    with pytest.raises(CallbackRefused) as error:
        await world.app.complete_callback(token, {"id": value})
    assert token not in str(error.value)
    return error.value.because


async def test_a_step_gets_a_url_and_the_value_that_is_sent_to_it_reaches_the_code(world: World) -> None:
    task = await begun(world, order(1))
    (done,) = seen
    assert done.url == f"https://callbacks.test/v1/callbacks/{done.token}"
    assert (done.name, repr(done)) == ("bank_receipt", "<callback bank_receipt#1>")
    assert done.expires_at == datetime(2026, 1, 1, 1, tzinfo=UTC)
    assert len(done.token) < 150
    assert await world.app.complete_callback(done.token, BankReceipt("r-1", 5))
    assert await task.result() == "r-1"


async def test_the_record_names_the_wait_and_holds_no_token(world: World) -> None:
    task = await begun(world, order(1))
    await world.app.complete_callback(seen[0].token, BankReceipt("r-1"))
    await task.result()
    loaded = await world.app.session.store.find(task.id)
    assert loaded is not None
    wait, step = loaded.steps
    assert (wait.name, wait.key, wait.result) == ("callback:bank_receipt", "#1", '{"id":"r-1","amount":0}')
    assert step.arguments == '{"done":{"callback":"bank_receipt#1"},"number":1}'
    events = [row async for row in world.app.session.store.history(loaded.task.task_no)]
    assert seen[0].token.split(".")[2] not in repr((loaded, events))


async def test_callbacks_in_other_values_are_read_with_their_urls(world: World) -> None:
    task = await begun(world, patient(60))
    assert seen[0].url.startswith("https://callbacks.test/")
    await world.app.complete_callback(seen[0].token, {"id": "r-7"})
    assert await task.result() == "r-7"


async def test_an_operator_completes_a_callback_by_its_name(world: World) -> None:
    task = await begun(world, several())
    with pytest.raises(
        InvalidInput, match="has several callbacks 'bank_receipt': name one of bank_receipt#1, bank_receipt#2"
    ):
        await task.complete_callback("bank_receipt", {"id": "a"}, by="ana")
    with pytest.raises(
        InvalidInput, match="has no callback 'other'; it has: bank_receipt#1, bank_receipt#2, callback#1"
    ):
        await task.complete_callback("other", {"id": "a"})
    with pytest.raises(CallbackRefused, match="which stays open"):
        await task.complete_callback("bank_receipt#2", 7, by="ana")
    assert await task.complete_callback("bank_receipt#2", BankReceipt("b"), by="ana")
    assert not await task.complete_callback("bank_receipt#2", BankReceipt("b"), by="ana")
    assert await task.complete_callback("callback", "done", by="ana")
    await world.clock.advance(1)
    assert await task.complete_callback("bank_receipt", BankReceipt("a"), by="ana")  # the only one that waits
    assert await task.result() == ["a", "b", "done"]
    assert await refused_because(world, seen[0].token, "x") == "answered"
    rows = await world.app.session.store.list_signals(1, after=0, limit=9)
    assert [row.sent_by for row in rows] == ["ana"] * 3


async def test_several_callbacks_are_completed_in_any_order(world: World) -> None:
    task = await begun(world, several())
    first, word, second = seen
    assert [one.label for one in seen] == ["bank_receipt#1", "callback#1", "bank_receipt#2"]
    for token, value in (word.token, "done"), (second.token, {"id": "b"}), (first.token, {"id": "a"}):
        assert await world.app.complete_callback(token, value)
    assert await task.result() == ["a", "b", "done"]


async def test_a_callback_whose_time_is_over_raises_in_the_code_and_takes_nothing(world: World) -> None:
    task = await begun(world, patient(60))
    assert await task.result() == "callback_timeout: callback receipt did not come within 1 min"
    assert await refused_because(world, seen[0].token) == "ended"


async def test_a_callback_that_is_late_is_refused_while_the_task_goes_on(world: World) -> None:
    task = await begun(world, impatient(60))
    await world.clock.advance(100)
    assert await refused_because(world, seen[0].token) == "late"
    assert await task.result() == "without it"


async def test_an_awaiter_that_is_cancelled_leaves_the_callback_open(world: World) -> None:
    task = await begun(world, raced())
    await world.clock.advance(100)
    assert await world.app.complete_callback(seen[0].token, {"id": "r-2"})
    assert await task.result() == "r-2"


async def test_the_same_delivery_is_answered_alike_and_another_one_is_refused(world: World) -> None:
    task = await begun(world, order(1))
    complete, token = world.app.complete_callback, seen[0].token
    assert await complete(token, {"id": "r-1", "amount": 3}, idempotency_key="d-1")
    for again in ({"amount": 3, "id": "r-1"}, "d-1"), ({"id": "r-1", "amount": 3}, None), ({"id": "r-2"}, "d-1"):
        assert not await complete(token, again[0], idempotency_key=again[1])
    assert await refused_because(world, token, "r-2") == "answered"
    assert await task.result() == "r-1"
    assert not await complete(token, {"id": "r-1", "amount": 3})
    assert await refused_because(world, token, "r-2") == "answered"


async def test_a_value_that_does_not_fit_is_refused_and_the_callback_stays_open(world: World) -> None:
    task = await begun(world, order(1))
    for value in (7, {"id": 7}, {"amount": 3}, None):
        with pytest.raises(CallbackRefused, match="which stays open") as error:
            await world.app.complete_callback(seen[0].token, value)
        assert error.value.because == "unfit"
    with pytest.raises(InvalidInput, match="at most 100,000"):
        await world.app.complete_callback(seen[0].token, {"id": "x" * VALUE_BYTES_MAX})
    assert await world.app.complete_callback(seen[0].token, {"id": "r-1"})
    assert await task.result() == "r-1"


async def test_a_value_that_only_the_scheduler_finds_unfit_is_set_aside_and_may_be_sent_right(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = await begun(world, order(1))
    monkeypatch.setattr("arriero.client.callbacks.check_by_code", NO_CODE)
    complete, token = world.app.complete_callback, seen[0].token
    assert await complete(token, {"id": 7}, idempotency_key="d-1")
    await world.clock.advance(1)
    for key in "d-1", None:
        with pytest.raises(CallbackRefused, match="cannot read the value") if key else contextlib.nullcontext():
            await complete(token, {"id": 7}, idempotency_key=key)
    await world.clock.advance(1)
    assert await complete(token, {"id": "r-1"}, idempotency_key="d-2")
    assert await task.result() == "r-1"


async def test_a_value_is_refused_for_now_while_another_one_is_not_read(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = await begun(world, order(1))
    await task.pause(by="ana", reason="a release")
    monkeypatch.setattr("arriero.client.callbacks.check_by_code", NO_CODE)
    complete, token = world.app.complete_callback, seen[0].token
    assert await complete(token, {"id": 7})
    assert not await complete(token, {"id": 7})
    assert await refused_because(world, token, "r-1") == "undecided"
    await task.resume(by="ana", reason="released")
    await world.clock.advance(1)
    assert await complete(token, {"id": "r-1"})
    assert await task.result() == "r-1"
    assert await refused_because(world, token, "r-2") == "answered"


def test_a_pydantic_model_holds_no_callback() -> None:
    class Order(pydantic.BaseModel):
        model_config = {"arbitrary_types_allowed": True}
        receipts: list[Callback[str]]

    with pytest.raises(DefinitionError, match="a pydantic model cannot hold a Callback: use a dataclass"):

        @bank.step
        async def order_in_a_model(order: Order) -> None:
            raise AssertionError("it is refused")


async def test_a_token_that_is_no_text_is_refused_as_invalid(world: World) -> None:
    for token in (None, 5, b"1.x.y"):
        with pytest.raises(InvalidInput, match="the token of a callback is a str, not"):
            await world.app.complete_callback(cast("str", token), {"id": "r-1"})


async def test_a_token_that_was_not_made_here_is_refused_without_a_word_about_tasks(world: World) -> None:
    await begun(world, order(1))
    version, said, signature = seen[0].token.split(".")
    other = said[:-2] + ("AA" if said[-2:] != "AA" else "BB")
    for token in (
        "",
        "1..",
        "1.x.y",
        f"{version}.{other}.{signature}",
        f"{version}.{said}.{signature[:-2]}AA",
        "é.é.é",
    ):
        with pytest.raises(CallbackRefused, match="there is no such callback") as error:
            await world.app.complete_callback(token, {"id": "r-1"})
        assert error.value.because == "unknown"
    async with testing.running(App("shop", agents=[bank], workflows=[order])) as elsewhere:
        await begun(elsewhere, order(1))
        assert await refused_because(elsewhere, f"{version}.{said}.{signature}") == "unknown"


async def test_the_callbacks_of_a_task_that_is_undone_take_nothing(world: World) -> None:
    task = await begun(world, undone_later())
    token = seen[0].token
    assert await world.app.complete_callback(token, {"id": "r-1"})
    with pytest.raises(TaskCompensated):
        await task.result()
    assert undone == [token]  # its compensation can tell the service which one is over
    assert not await world.app.complete_callback(token, {"id": "r-1"})
    assert await refused_because(world, token, "r-2") == "answered"


async def test_a_cancelled_task_refuses_its_callbacks(world: World) -> None:
    task = await begun(world, order(1))
    await task.cancel(by="ana", reason="the customer left")
    with pytest.raises(TaskCompensated):
        await task.result()
    assert await refused_because(world, seen[0].token) == "undone"


async def test_a_task_that_begins_again_has_callbacks_of_its_own(world: World) -> None:
    task = await begun(world, order(1))
    await task.cancel(by="ana", reason="the customer left")
    with pytest.raises(TaskCompensated):
        await task.result()
    await task.resubmit(by="ana", reason="the customer is back")
    await world.clock.advance(5)
    before, now = seen
    assert before.token != now.token
    assert await refused_because(world, before.token) == "past_life"
    assert await world.app.complete_callback(now.token, {"id": "r-1"})
    assert await task.result() == "r-1"


async def test_a_held_task_keeps_what_is_sent_and_a_resubmission_takes_it(world: World) -> None:
    task = await begun(world, held_first(1))
    with pytest.raises(TaskHeld):
        await task.result()
    assert await world.app.complete_callback(seen[0].token, {"id": "r-1"})
    assert not await world.app.complete_callback(seen[0].token, {"id": "r-1"})
    assert await refused_because(world, seen[0].token, "r-2") == "undecided"
    mended.append(True)
    await task.resubmit(by="ana", reason="the service is back")
    assert await task.result() == "r-1"


async def test_what_a_held_task_has_kept_is_not_for_the_callbacks_of_its_next_life(world: World) -> None:
    task = await begun(world, held_first(1))
    with pytest.raises(TaskHeld):
        await task.result()
    assert await world.app.complete_callback(seen[0].token, {"id": "of before"})
    await task.compensate(by="ana", reason="the service stays away")
    with pytest.raises(TaskCompensated):
        await task.result()
    mended.append(True)
    await task.resubmit(by="ana", reason="again, from the start")
    await world.clock.advance(5)
    assert await refused_because(world, seen[0].token, "of before") == "past_life"
    assert await world.app.complete_callback(seen[-1].token, {"id": "of now"})
    assert await task.result() == "of now"


async def test_a_purged_task_refuses_its_callbacks(world: World) -> None:
    task = await begun(world, order(1))
    await world.app.complete_callback(seen[0].token, {"id": "r-1"})
    await task.result()
    store = world.app.session.store
    await world.clock.advance(timedelta(days=30))
    await store.purge(Purge(states=tuple(TaskState), ended_before=store.now()), actor="t", limit=9)
    assert await refused_because(world, seen[0].token) == "purged"


@pytest.mark.parametrize("has_epoch", [True, False], ids=["with a new epoch", "without"])
async def test_urls_of_before_a_restore_complete_the_callbacks_of_the_backup(machine: Machine, has_epoch: bool) -> None:
    def open_app() -> App:
        return machine.app([bank], [order], settings=msgspec.structs.replace(QUICK, public_url="https://shop"))

    seen.clear()
    async with open_app().running() as app:
        await app.submit(order(1), task_id="order-1")
        await until(lambda: len(seen) == 1)
    backup = machine.path.read_bytes()
    async with open_app().running() as app:
        await app.submit(order(2), task_id="order-2")
        await until(lambda: len(seen) == 2)
        assert await app.complete_callback(seen[0].token, {"id": "r-1"})
        assert await within(app.task("order-1").result()) == "r-1"
    machine.path.write_bytes(backup)
    if has_epoch:
        store = SqliteStore(str(machine.path))
        await store.open()
        await store.new_epoch("operator")
        await store.close()
    async with open_app().running() as app:
        await app.submit(order(3), task_id="order-3")  # without an epoch it has the number of order-2
        await until(lambda: len(seen) == 3)
        with pytest.raises(CallbackRefused, match="its task is not there any longer"):
            await app.complete_callback(seen[1].token, {"id": "r-2"})
        assert await app.complete_callback(seen[0].token, {"id": "r-1"})
        assert await within(app.task("order-1").result()) == "r-1"
        assert await app.complete_callback(seen[2].token, {"id": "r-3"})
        assert await within(app.task("order-3").result()) == "r-3"
    await machine.check()


async def test_a_task_that_ends_before_its_callback_comes_takes_nothing(world: World) -> None:
    task = await begun(world, forgetful())
    assert await task.result() == "done"
    assert await refused_because(world, seen[0].token) == "ended"


@pytest.mark.parametrize(
    ("number", "says"),
    [
        (0, "<callback bank_receipt#1> has its url only in the function of a step: pass the callback to a step"),
        (1, "<callback bank_receipt#1> has its token only in the function of a step"),
        (2, "the name of a callback is 'a#1'; it must be without '#'"),
    ],
)
async def test_what_workflow_code_cannot_do_is_refused_by_name(world: World, number: int, says: str) -> None:
    task = await world.app.submit(misuses(number))
    with pytest.raises(TaskHeld, match=re.escape(says)):
        await task.result()


@bank.step
async def takes_anything(done: Any) -> None: ...


@workflow
async def passes_on(number: int) -> None:
    receipt = callback(str)
    if number == 2:
        publish(receipt)
    await takes_anything([receipt] if number else receipt)


@pytest.mark.parametrize(
    ("number", "says"),
    [
        (0, "arguments of step takes_anything: done is a Callback: annotate the step's parameter with Callback"),
        (1, "arguments of step takes_anything: done[0] is a Callback: annotate the step's parameter with Callback"),
        (2, "what the workflow publishes: it is a Callback: annotate the step's parameter with Callback"),
    ],
)
async def test_a_callback_is_passed_only_where_a_step_says_that_it_takes_one(number: int, says: str) -> None:
    async with testing.running(App("shop", agents=[bank], workflows=[passes_on])) as world:
        task = await world.app.submit(passes_on(number))
        with pytest.raises(TaskHeld, match=re.escape(says)):
            await task.result()


async def test_a_callback_made_by_hand_has_a_url() -> None:
    seen.clear()
    done = testing.callback("receipt", token="t-1")
    assert await pay.function(1, done) == 1
    assert (seen[0].name, seen[0].url, seen[0].expires_at) == (
        "receipt",
        "https://callbacks.test/v1/callbacks/t-1",
        None,
    )


async def test_a_callback_is_made_and_awaited_by_workflow_code_alone(world: World) -> None:
    with pytest.raises(ArrieroError, match=r"arriero.callback\(...\) works only inside a workflow"):
        callback(BankReceipt)
    await begun(world, order(1))
    with pytest.raises(ArrieroError, match="is awaited by the workflow that made it"):
        await seen[0]


def test_only_steps_take_callbacks() -> None:
    with pytest.raises(DefinitionError, match=r"parameter done has the type .*: only a step takes a Callback"):

        @workflow
        async def takes(done: Callback[str]) -> None: ...

    with pytest.raises(DefinitionError, match=r"result has the type .*: only a step takes a Callback"):

        @bank.step(name="gives")
        async def gives() -> Callback[str]: ...

    with pytest.raises(DefinitionError, match="only a step takes a Callback"):
        Signal("done", Callback)


async def test_the_arguments_of_an_operator_name_a_callback_of_the_task(world: World) -> None:
    task = await world.app.submit(pay(1, Callback("stolen#1")))
    with pytest.raises(TaskCompensated, match="the task has no callback stolen#1"):
        await task.result()
    assert not seen
