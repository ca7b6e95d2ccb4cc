"""Steps that take callbacks begin only in processes that know `public_url`; elsewhere they wait, and nothing is charged."""

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner
from runtime_world import QUICK, Machine, eventually, session_of, until, within

from arriero import Agent, App, Breaker, Callback, Concurrent, Permanent, TaskCompensated, callback, workflow
from arriero.cli.main import commands
from arriero.client.remote_agents import RemoteAgents
from arriero.declare.signature import Signature
from arriero.model import StepState
from arriero.model.commands import Take
from arriero.runtime.settings import DEFAULT_ROLES, ROLES

WITH_URL = msgspec.structs.replace(QUICK, public_url="https://shop")


@dataclass
class Order:
    number: int
    done: list[Callback[str]]


class Shop:
    """Apps of one shop, each as a process of its own, and what their steps were given."""

    def __init__(self, machine: Machine, **options: Any) -> None:
        self.machine, self.options = machine, options
        self.urls: list[str] = []
        self.undone: list[str] = []
        self.charged: list[int] = []
        self.refuses = False

    def app(self, *, has_url: bool) -> App:
        bank = Agent("bank", **self.options)

        @bank.step
        async def charge(number: int) -> None:
            self.charged.append(number)

        @bank.step
        async def pay(order: Order) -> None:
            self.urls.append(order.done[0].url)

        @pay.compensation
        async def refund(order: Order) -> None:
            self.undone.append(order.done[0].url)

        @bank.step(effect_free=True)
        async def ship(number: int) -> None:
            if self.refuses:
                raise Permanent("out of stock")

        @charge.compensation
        async def uncharge(number: int) -> None: ...

        @workflow
        async def sell(number: int) -> str:
            await charge(number)
            done = callback(str)
            await pay(Order(number, [done]))
            value = await done
            await ship(number)
            return value

        return self.machine.app([bank], [sell], settings=WITH_URL if has_url else QUICK)

    @asynccontextmanager
    async def running(
        self, roles: frozenset[str] | tuple[str, ...] = DEFAULT_ROLES, *, has_url: bool
    ) -> AsyncIterator[App]:
        async with self.app(has_url=has_url).running(roles=roles) as app:
            yield app

    async def submit(self, app: App, number: int = 1) -> Any:
        (sell,) = app.workflows
        return await app.submit(sell(number), task_id=f"order-{number}")

    async def complete(self, app: App) -> None:
        assert await app.complete_callback(self.urls[-1].rpartition("/")[2], "paid")


async def waiting_step(app: App, number: int = 1) -> Any:
    """Wait until the step with the callback waits in the store."""

    async def look() -> Any:
        loaded = await app.session.store.find(f"order-{number}")
        assert loaded is not None
        return next((step for step in loaded.steps if step.name == "pay"), None)

    return await eventually(look)


OPTIONS: dict[str, dict[str, Any]] = {
    "plain": {},
    "a limit": {"limits": [Concurrent(1)]},
    "a limit of each order": {"limits": [Concurrent(1, key=lambda: "all")]},
    "a breaker": {"breaker": Breaker(minimum=2)},
}


async def test_a_process_without_a_url_spends_no_attempt_and_asks_the_store_twice_a_second_at_most(
    machine: Machine,
) -> None:
    shop, takes = Shop(machine), 0
    async with shop.running(has_url=False) as app:
        write = session_of(app).committer._write

        async def count(batch: Any) -> Any:
            nonlocal takes
            takes += sum(isinstance(command, Take) for command in batch)
            return await write(batch)

        session_of(app).committer._write = count  # type: ignore[method-assign]
        await shop.submit(app)
        step = await waiting_step(app)
        polls = 0

        def look(*given: Any) -> Any:
            nonlocal polls
            polls += 1
            return due(*given)

        due, app.session.store.due = app.session.store.due, look  # type: ignore[method-assign]
        await until(lambda: polls > 40)
        assert takes <= 10, "40 polls of 20 ms found it due"
        step = await waiting_step(app)
        assert (step.state, step.taken, step.failure_count) == (StepState.PENDING, False, 0)
    await machine.check(complete=False)


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
async def test_another_process_takes_what_one_without_a_url_leaves(machine: Machine, options: dict[str, Any]) -> None:
    shop = Shop(machine, **options)
    async with shop.running(has_url=False) as app:
        task = await shop.submit(app)
        await waiting_step(app)
        async with shop.running(("agents",), has_url=True) as other:
            await until(lambda: shop.urls)
            await shop.complete(other)
            assert await within(task.result()) == "paid"
    assert shop.urls[0].startswith("https://shop/v1/callbacks/")
    await machine.check()


async def test_the_undo_of_such_a_step_waits_for_a_process_with_a_url(machine: Machine) -> None:
    shop = Shop(machine)
    async with shop.running(has_url=False) as app:
        task = await shop.submit(app)
        async with shop.running(("agents",), has_url=True):
            await until(lambda: shop.urls)
        shop.refuses = True
        await shop.complete(app)
        await machine.event("undo.planned")
        assert not shop.undone
        async with shop.running(("agents",), has_url=True):
            with pytest.raises(TaskCompensated):
                await within(task.result())
    assert shop.undone == shop.urls, "it gets the same URL"
    await machine.check()


async def test_a_replay_by_another_process_goes_on_from_the_step(machine: Machine) -> None:
    shop = Shop(machine)
    async with shop.running(has_url=True) as app:
        await shop.submit(app)
        await until(lambda: shop.urls)
        await shop.complete(app)
        assert await within(app.task("order-1").result()) == "paid"
        await shop.submit(app, 2)
        await until(lambda: len(shop.urls) == 2)
    async with shop.running(has_url=False) as app:  # the step is done: nothing of what is left needs a URL
        await shop.complete(app)
        assert await within(app.task("order-2").result()) == "paid"
    assert shop.charged == [1, 2]
    await machine.check()


async def test_explain_and_doctor_name_the_setting_that_is_missing(
    machine: Machine, caplog: pytest.LogCaptureFixture
) -> None:
    shop = Shop(machine)
    async with shop.running(has_url=False) as app:
        await shop.submit(app)
        await waiting_step(app)
        for words in (("task", "explain", "order-1"), ("doctor",)):
            told = await asyncio.to_thread(CliRunner().invoke, commands, (*words, "--store", machine.url))
            says = " ".join(told.output.split())
            assert "its callback needs a URL, and no public_url is set for process 1" in says, told.output
            assert "set public_url in arriero.toml, or ARRIERO_PUBLIC_URL=https://HOST" in says, told.output
    assert "no attempt of step pay begins here, because callbacks need a URL: set public_url" in caplog.text


async def test_a_gateway_without_a_url_gives_no_such_request_to_programs(machine: Machine) -> None:
    def app(settings: Any) -> App:
        bank = Agent("bank")

        @bank.step(remote=True, effect_free=True)
        def collect(done: Callback[str]) -> None: ...

        @workflow
        async def sell() -> str:
            done = callback(str)
            await collect(done)
            return await done

        return machine.app([bank], [sell], settings=settings)

    async with app(QUICK).running(roles=ROLES) as lacking, app(WITH_URL).running(roles=("http",)) as other:
        (sell,) = lacking.workflows
        await lacking.submit(sell(), task_id="order-1")
        assert await RemoteAgents(lacking.session).take("bank", 1, 0.3) == ()
        (request,) = await within(RemoteAgents(other.session).take("bank", 1, 15))
        assert request.attempt == 1
        assert b'"url":"https://shop/v1/callbacks/' in bytes(request.arguments)


def test_a_type_that_is_defined_after_the_step_counts() -> None:
    def collect(order: "DefinedLater") -> None: ...  # type: ignore[name-defined]  # noqa: F821

    signature = Signature(collect, "step collect", may_be_given=True)
    assert not signature.takes_references
    setattr(sys.modules[__name__], "DefinedLater", Order)  # noqa: B010
    signature.resolve_if_defined()
    assert signature.takes_references
