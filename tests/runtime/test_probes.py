"""Probes: who asks a service that is down, how often, and what a probe that hangs or breaks does."""

import asyncio
import logging
import threading
from typing import Any

import pytest
from runtime_world import Machine, running_with_probes, session_of, until, within

from arriero import Agent, App, Attempt, Breaker, Retry, workflow
from arriero.model.agents import BreakerState
from arriero.testing.world import World


class Bank:
    """A service that is down, and counts its calls and probes."""

    def __init__(self, breaker: Breaker = Breaker(minimum=5, cool_off=10, ramp=30), **options: Any) -> None:
        self.is_down = True
        self.calls = 0
        self.probes: list[str] = []
        self.agent = Agent("bank", breaker=breaker, **options)

        @self.agent.step(retry=Retry(tries=1), effect_free=True)
        async def charge(attempt: Attempt, order: int) -> int:
            self.calls += 1
            if self.is_down:
                raise ConnectionError("refused")
            return order

        @workflow
        async def order(number: int) -> int:
            return await charge(number)

        self.order = order
        self.app = App("shop", agents=[self.agent], workflows=[order])

    async def ask(self, target: str = "") -> None:
        self.probes.append(target)
        if self.is_down:
            raise ConnectionError("refused")


async def _submit(bank: Bank, world: World, orders: int = 10) -> list[Any]:
    return [await world.app.submit(bank.order(number)) for number in range(orders)]


async def test_the_probe_asks_in_place_of_real_requests_until_the_service_is_well() -> None:
    bank = Bank()

    @bank.agent.probe
    async def ask() -> None:
        await bank.ask()

    async with running_with_probes(bank.app) as world:
        tasks = await _submit(bank, world)
        await world.clock.advance(5)
        burnt = bank.calls
        await world.clock.advance(40)
        assert bank.calls == burnt  # no canary
        assert 2 <= len(bank.probes) <= 5
        bank.is_down = False
        assert await asyncio.gather(*(within(task.result()) for task in tasks)) == list(range(10))
        (row,) = await world.app.session.store.list_breakers()
        assert row.state is not BreakerState.OPEN


async def test_a_breaker_without_requests_closes_by_its_probe() -> None:
    bank = Bank()

    @bank.agent.probe()
    def ask() -> None:
        if bank.is_down:
            raise ConnectionError("refused")

    async with running_with_probes(bank.app) as world:
        tasks = await _submit(bank, world)
        await world.clock.advance(2)
        for task in tasks:
            await task.cancel(by="ana", reason="not needed")
        bank.is_down = False
        await world.clock.advance(60)
        (row,) = await world.app.session.store.list_breakers()
        assert row.state is BreakerState.CLOSED


async def test_with_a_breaker_key_the_probe_gets_the_part_that_it_asks() -> None:
    bank = Bank(breaker_key=lambda order: "north")

    @bank.agent.probe
    async def ask(part: str) -> None:
        await bank.ask(part)

    async with running_with_probes(bank.app) as world:
        await _submit(bank, world)
        await world.clock.advance(15)
        assert set(bank.probes) == {"north"}


async def test_a_probe_that_hangs_is_cut_off_and_the_next_one_follows() -> None:
    bank = Bank()

    @bank.agent.probe(complete_within=3)
    async def ask() -> None:
        bank.probes.append("")
        if bank.is_down:
            await asyncio.Event().wait()

    async with running_with_probes(bank.app) as world:
        tasks = await _submit(bank, world)
        await world.clock.advance(30)
        assert len(bank.probes) >= 2
        bank.is_down = False
        assert await asyncio.gather(*(within(task.result()) for task in tasks)) == list(range(10))


@pytest.mark.parametrize("error", [SystemExit(3), KeyError("x"), asyncio.CancelledError()])
async def test_whatever_a_probe_raises_is_an_answer_that_the_service_is_not_well(error: BaseException) -> None:
    bank = Bank()

    @bank.agent.probe
    async def ask() -> None:
        bank.probes.append("")
        raise error

    async with running_with_probes(bank.app) as world:
        await _submit(bank, world)
        await world.clock.advance(35)
        assert len(bank.probes) >= 2
        (row,) = await world.app.session.store.list_breakers()
        assert row.state is BreakerState.OPEN


async def test_of_two_processes_one_asks_at_a_time(machine: Machine) -> None:
    under_way, most, asked = 0, 0, 0
    banks = [Bank(Breaker(minimum=5, cool_off=0.1, ramp=0.5)) for _ in range(2)]
    for bank in banks:

        @bank.agent.probe(complete_within=1)
        async def ask() -> None:
            nonlocal under_way, most, asked
            under_way, asked = under_way + 1, asked + 1
            most = max(most, under_way)
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            under_way -= 1
            raise ConnectionError("refused")

    apps = [machine.app([bank.agent], [bank.order]) for bank in banks]
    async with apps[0].running(), apps[1].running():
        for number in range(10):
            await apps[number % 2].submit(banks[number % 2].order(number))
        await until(lambda: asked >= 6)
    assert most == 1
    await machine.check(complete=False)


async def test_a_plain_probe_that_never_returns_holds_its_process_from_the_next_one_and_not_from_its_end(
    machine: Machine, caplog: pytest.LogCaptureFixture
) -> None:
    bank, go_on = Bank(Breaker(minimum=5, cool_off=0.1, ramp=0.5)), threading.Event()

    @bank.agent.probe(complete_within=0.05)
    def ask() -> None:
        bank.probes.append("")
        go_on.wait()

    app = machine.app([bank.agent], [bank.order])
    try:
        with caplog.at_level(logging.WARNING, "arriero"):
            async with app.running():
                for number in range(10):
                    await app.submit(bank.order(number))
                await machine.event("breaker.probe_ended")
                host = session_of(app).agents
                await until(
                    lambda: all(
                        row.probe_at < host.context.store.now() for row in host.hosted["bank"].breakers.known.values()
                    )
                )
                assert len(bank.probes) == 1
    finally:
        go_on.set()
    assert not [record for record in caplog.records if "broke" in record.message]
