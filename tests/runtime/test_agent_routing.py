"""Agents that provide the same steps, in running Apps: who gets the calls, who takes over, and what stays where it was."""

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from runtime_world import Machine, session_of, until, within

from arriero import (
    Agent,
    App,
    Attempt,
    Breaker,
    Concurrent,
    Permanent,
    Retry,
    Supervision,
    TaskCompensated,
    TaskFailed,
    Undo,
    testing,
    workflow,
)
from arriero.testing.world import World

BREAKER = Breaker(minimum=4, window=10, cool_off=5, ramp=4)
PATIENT = Supervision(attempts=9)


class Shop:
    """Two Agents for one step. ``calls``: which of them was called, in order; ``down``: those that fail."""

    def __init__(
        self,
        *,
        interchangeable: bool = False,
        breaker: Breaker | None = BREAKER,
        supervision: Supervision = PATIENT,
        **options: Any,
    ) -> None:
        self.calls: list[str] = []
        self.undone: list[str] = []
        self.keys: dict[str, set[str]] = {}
        self.down: set[str] = set()
        self.payments = Agent("payments", breaker=breaker)
        self.eu = Agent("payments-eu", provides=self.payments, breaker=breaker, **options)
        charge = self.payments.step(
            name="charge",
            retry=Retry(tries=1),
            supervision=supervision,
            interchangeable=interchangeable,
            complete_within=5,
        )(self._charge("payments"))
        charge.compensation(self._refund("payments"))
        self.eu.step(name="charge")(self._charge("payments-eu")).compensation(self._refund("payments-eu"))
        self.charge = charge

        @workflow
        async def order(number: int, refuse: bool) -> int:
            paid: int = await charge(number)
            if refuse:
                raise Permanent("out of stock")
            return paid

        self.order = order
        self.app = App("shop", agents=[self.payments, self.eu], workflows=[order])

    def _charge(self, name: str) -> Callable[..., Any]:
        async def charge(attempt: Attempt, number: int) -> int:
            self.calls.append(name)
            self.keys.setdefault(name, set()).add(attempt.idempotency_key)
            if name in self.down:
                raise ConnectionError("connection refused")
            return number

        return charge

    def _refund(self, name: str) -> Callable[..., Any]:
        async def refund(undo: Undo[int], number: int) -> None:
            self.undone.append(name)
            if name in self.down:
                raise ConnectionError("connection refused")

        return refund


async def submitted(shop: Shop, world: World, count: int, *, refuse: bool = False, start: int = 0) -> list[Any]:
    numbers = range(start, start + count)
    return [await world.app.submit(shop.order(number, refuse), task_id=f"order-{number}") for number in numbers]


async def test_weights_share_the_calls() -> None:
    shop = Shop(weight=3)
    async with testing.running(shop.app) as world:
        for task in await submitted(shop, world, 40):
            await within(task.result())
    assert Counter(shop.calls) == {"payments-eu": 30, "payments": 10}


async def test_a_later_preference_gets_calls_only_when_the_first_one_is_down_and_the_first_gets_them_back() -> None:
    shop = Shop(preference=1)
    async with testing.running(shop.app) as world:
        for task in await submitted(shop, world, 10):
            await within(task.result())
        assert set(shop.calls) == {"payments"}
        shop.down = {"payments"}
        failing = await submitted(shop, world, 8, start=100)
        await world.clock.advance(2)
        (row,) = await world.app.session.store.list_breakers()
        assert (row.agent, row.state) == ("payments", "open")
        before = len(shop.calls)
        for task in await submitted(shop, world, 10, start=200):
            await within(task.result())
        assert set(shop.calls[before:]) == {"payments-eu"}
        shop.down = set()
        for second in range(30):
            for task in await submitted(shop, world, 2, start=1_000 + 10 * second):
                await within(task.result())
            await world.clock.advance(1)
        (row,) = await world.app.session.store.list_breakers()
        assert row.state == "closed"
        before = len(shop.calls)
        for task in await submitted(shop, world, 10, start=2_000):
            await within(task.result())
        assert set(shop.calls[before:]) == {"payments"}
        for task in failing:
            await within(task.result())
    assert not shop.keys["payments"] & shop.keys["payments-eu"], "what payments had begun stayed there"


async def test_an_interchangeable_step_goes_on_at_the_other_agent_under_its_key() -> None:
    shop = Shop(interchangeable=True, preference=1)
    async with testing.running(shop.app) as world:
        shop.down = {"payments"}
        tasks = await submitted(shop, world, 8)
        await world.clock.advance(10)
        for task in tasks:
            await within(task.result())
    assert shop.keys["payments"] <= shop.keys["payments-eu"] | shop.keys["payments"]
    assert shop.keys["payments"] & shop.keys["payments-eu"]


@pytest.mark.parametrize("interchangeable", [False, True])
async def test_a_compensation_reaches_the_service_that_did_the_step(interchangeable: bool) -> None:
    shop = Shop(interchangeable=interchangeable, weight=1)
    async with testing.running(shop.app) as world:
        tasks = await submitted(shop, world, 6, refuse=True)
        for task in tasks:
            with pytest.raises(TaskCompensated):
                await within(task.result())
    assert sorted(shop.undone) == sorted(shop.calls)
    assert set(shop.calls) == {"payments", "payments-eu"}


async def test_a_paused_agent_gets_nothing_and_the_other_one_everything() -> None:
    shop = Shop()
    async with testing.running(shop.app) as world:
        await world.app.agent("payments").pause(by="ana", reason="maintenance")
        await world.clock.advance(2)
        for task in await submitted(shop, world, 10):
            await within(task.result())
    assert set(shop.calls) == {"payments-eu"}


async def test_a_process_without_a_provider_gives_it_nothing_unless_another_one_hosts_it(tmp_path: Path) -> None:
    machine, shop = Machine(tmp_path / "store.db"), Shop()
    first = machine.app([shop.payments, shop.eu], [shop.order])
    async with first.running(agents=["payments"]):
        tasks = [await first.submit(shop.order(number, False)) for number in range(6)]
        for task in tasks:
            await within(task.result())
        assert set(shop.calls) == {"payments"}
        second = machine.app([shop.payments, shop.eu], [shop.order])
        async with second.running(roles=["agents"], agents=["payments-eu"]):
            await until(lambda: any("payments-eu" in other.room for other in session_of(first).membership.others))
            tasks = [await first.submit(shop.order(number, False)) for number in range(10)]
            for task in tasks:
                await within(task.result())
            assert Counter(shop.calls[6:]) == {"payments": 5, "payments-eu": 5}
    await machine.check()


async def test_a_request_for_an_agent_whose_processes_are_gone_is_taken_over(tmp_path: Path) -> None:
    machine, shop = Machine(tmp_path / "store.db"), Shop()
    with_eu = machine.app([shop.payments, shop.eu], [shop.order])
    async with with_eu.running(roles=["scheduler"]):  # nobody hosts any Agent
        task = await with_eu.submit(shop.order(1, False))
        await machine.event("step.opened")
        async with machine.app([shop.payments, shop.eu], [shop.order]).running(
            roles=["agents"], agents=["payments-eu"]
        ):
            assert await within(task.result()) == 1
    assert shop.calls == ["payments-eu"]
    await machine.check()


async def test_a_release_that_does_not_know_the_provider_takes_what_is_the_base_s(tmp_path: Path) -> None:
    machine, shop = Machine(tmp_path / "store.db"), Shop()
    old = Shop()
    before = machine.app([old.payments], [old.order])
    async with before.running():
        task = await before.submit(old.order(1, False))
        assert await within(task.result()) == 1
        async with machine.app([shop.payments, shop.eu], [shop.order]).running() as now:
            for number in range(10):
                assert await within((await now.submit(shop.order(number, False))).result()) == number
    await machine.check()


async def test_what_a_person_resubmits_goes_on_where_it_was_taken() -> None:
    shop = Shop(breaker=None, supervision=Supervision(attempts=1, then="hold"))
    shop.down = {"payments", "payments-eu"}
    async with testing.running(shop.app) as world:
        tasks = await submitted(shop, world, 6)
        for task in tasks:
            with pytest.raises(TaskFailed):
                await within(task.result())
        assert len(shop.keys["payments"]) == len(shop.keys["payments-eu"]) == 3
        shop.down = set()
        for task in tasks:
            await task.resubmit(by="ana", reason="the services are well")
            await within(task.result())
    assert len(shop.calls) == 12
    assert not shop.keys["payments"] & shop.keys["payments-eu"]


async def test_a_person_s_answer_to_a_step_that_moved_is_its_result_and_its_undo_goes_where_it_was_taken() -> None:
    shop = Shop(breaker=None, supervision=Supervision(attempts=1, then="hold"), weight=1_000)
    async with testing.running(shop.app) as world:
        shop.down = {"payments-eu"}
        (task,) = await submitted(shop, world, 1, refuse=True)
        with pytest.raises(TaskFailed):
            await within(task.result())
        shop.down = set()
        await task.answer(step="charge", result=7, by="ana", reason="the bank says so")
        await task.resubmit(by="ana", reason="answered")
        with pytest.raises(TaskCompensated):
            await within(task.result())
    assert (shop.calls, shop.undone) == (["payments-eu"], ["payments-eu"])


async def test_a_step_in_doubt_waits_for_its_agent_also_while_that_is_down() -> None:
    shop = Shop(preference=1)
    shop.down = {"payments"}
    async with testing.running(shop.app) as world:
        tasks = await submitted(shop, world, 6)
        await world.clock.advance(30)
        (row,) = await world.app.session.store.list_breakers()
        assert row.state != "closed"
        store = world.app.session.store
        for listed in await store.list_tasks():
            loaded = await store.load(listed.task_no)
            assert loaded is not None
            assert [step.agent for step in loaded.steps if step.taken and step.result is None] in ([], ["payments"])
        shop.down = set()
        await world.clock.advance(30)
        for task in tasks:
            await within(task.result())
    assert not shop.keys["payments"] & shop.keys.get("payments-eu", set())


async def test_what_a_test_answers_for_a_step_its_providers_answer_too() -> None:
    shop = Shop()
    async with testing.running(shop.app) as world:
        world.replace(shop.charge, lambda number: -number)
        for number, task in enumerate(await submitted(shop, world, 6)):
            assert await within(task.result()) == -number
        assert len(world.calls(shop.charge)) == 6
        assert len(world.calls(shop.eu.steps["charge"])) == 3
    assert shop.calls == [], "no real service is called"


async def test_a_provider_with_limits_by_key_begins_requests_that_carry_no_key_at_once() -> None:
    base = Agent("base")
    limited = Agent("limited", provides=base, limits=[Concurrent(2, key=lambda who: who, name="of who")])

    @base.step(complete_within=5)
    async def call(attempt: Attempt, who: str) -> str:
        return "base"

    @limited.step(name="call")
    async def call_limited(attempt: Attempt, who: str) -> str:
        return "limited"

    @workflow
    async def ask(who: str) -> str:
        return await call(who)

    async with testing.running(App("shop", agents=[base, limited], workflows=[ask])) as world:
        await world.app.agent("base").pause(by="ana", reason="maintenance")
        for _ in range(30):
            task = await world.app.submit(ask("x"))
            await world.clock.advance(1)
            assert (await task.view()).state == "processed"
            await world.clock.advance(4)  # over two looks for requests from before the limits
