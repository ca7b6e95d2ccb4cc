"""An outage from its first call to its end, in one process and in two: how many calls go, what it costs the tasks."""

import asyncio
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest
from runtime_world import Machine, running_with_probes, session_of, within

from arriero import (
    Agent,
    App,
    Attempt,
    Breaker,
    InvalidInput,
    Permanent,
    Retry,
    Supervision,
    TaskFailed,
    Transient,
    testing,
    workflow,
)
from arriero.model.agents import BreakerState
from arriero.runtime import breakers
from arriero.testing.world import World


class Bank:
    """A remote service that is down from one instant to another. ``calls``: when it was called."""

    def __init__(self, **options: Any) -> None:
        self.is_down = False
        self.poisoned: set[int] = set()  # orders that always fail
        self.fails_with: Exception = ConnectionError("connection refused")
        self.calls: list[float] = []
        self.now = lambda: 0.0
        self.agent = Agent("bank", **options)

        @self.agent.step(retry=Retry(tries=3, delay=0.1), effect_free=True)
        async def charge(attempt: Attempt, order: int) -> int:
            self.calls.append(self.now())
            if self.is_down or order in self.poisoned:
                raise self.fails_with
            return order

        @workflow
        async def order(number: int) -> int:
            paid: int = await charge(number)
            return paid

        self.charge, self.order = charge, order
        self.app = App("shop", agents=[self.agent], workflows=[order])


@pytest.fixture
def bank() -> Bank:
    return Bank()


async def _outage(bank: Bank, world: World, orders: int, seconds: float) -> list[Any]:
    bank.now = lambda: world.clock.now().timestamp()
    bank.is_down = True
    tasks = [await world.app.submit(bank.order(number), task_id=str(number)) for number in range(orders)]
    await world.clock.advance(seconds)
    bank.is_down = False
    return tasks


async def test_an_outage_of_a_minute_costs_no_order_anything_but_time(bank: Bank) -> None:
    async with running_with_probes(bank.app) as world:
        tasks = await _outage(bank, world, 50, 60)
        for number, task in enumerate(tasks):
            assert await within(task.result()) == number
        store = world.app.session.store
        for of_task in [await store.load(task.task_no) for task in await store.list_tasks()]:
            assert of_task is not None
            assert [step.failure_count for step in of_task.steps] == [0]
        (row,) = await store.list_breakers()
        assert row.opened_at is not None


async def test_after_the_calls_that_open_it_one_canary_goes_each_cool_off(bank: Bank) -> None:
    async with running_with_probes(bank.app) as world:
        await _outage(bank, world, 200, 65)
        began = bank.calls[0]
        in_outage = [at - began for at in bank.calls]
        burnt = [at for at in in_outage if at < 9]
        canaries = [at for at in in_outage if at >= 9]
        assert len(burnt) <= 20 + bank.agent.max_in_flight
        assert len(canaries) == 6
        assert all(later - earlier >= 10 for earlier, later in pairwise(canaries))


async def test_an_attempt_that_waited_for_its_next_try_while_it_opened_makes_none() -> None:
    bank = Bank(max_in_flight=30)
    async with running_with_probes(bank.app) as world:
        await _outage(bank, world, 30, 5)
        assert max(bank.calls) == bank.calls[0]


async def test_every_request_flows_again_within_the_ramp(bank: Bank) -> None:
    async with running_with_probes(bank.app) as world:
        tasks = await _outage(bank, world, 200, 20)
        await world.clock.advance(10 + 31)
        assert len([task for task in tasks if (await task.view()).state == "processed"]) == len(tasks)


async def test_a_few_failing_orders_beside_many_that_succeed_do_not_open_it(bank: Bank) -> None:
    async with running_with_probes(bank.app) as world:
        world.replace(bank.charge, by=lambda order: _refuse_some(order))
        tasks = [await world.app.submit(bank.order(number)) for number in range(60)]
        ended = await asyncio.gather(*(within(task.result()) for task in tasks), return_exceptions=True)
        assert any(isinstance(end, TaskFailed) for end in ended)
        assert await world.app.session.store.list_breakers() == []


def _refuse_some(order: int) -> int:
    if order % 20 == 0:
        raise ConnectionError("reset")
    return order


async def test_one_order_that_always_fails_neither_holds_up_others_after_an_outage_nor_lives_for_ever(
    bank: Bank,
) -> None:
    bank.poisoned.add(-1)
    async with running_with_probes(bank.app) as world:
        poison = await world.app.submit(bank.order(-1), priority=9)
        tasks = [poison, *await _outage(bank, world, 25, 20)]
        for number in range(25, 45):
            tasks.append(await world.app.submit(bank.order(number)))
            await world.clock.advance(6)
        states = Counter([(await task.view()).state for task in tasks])
        assert states == {"processed": 45, "compensated": 1}
        (step,) = (await poison.view()).steps
        assert step.failure_count == Supervision().attempts


async def test_after_the_probe_has_succeeded_a_canary_that_fails_is_charged() -> None:
    bank = Bank()
    bank.agent.probe(lambda: None)
    bank.poisoned.add(-1)
    async with running_with_probes(bank.app) as world:
        poison = await world.app.submit(bank.order(-1), priority=9)
        await _outage(bank, world, 25, 5)
        await world.clock.advance(300)
        (step,) = (await poison.view()).steps
        assert step.failure_count == Supervision().attempts


async def test_one_order_that_always_fails_opens_no_breaker_that_its_calls_alone_could_open() -> None:
    bank = Bank(breaker=Breaker(minimum=2))
    bank.poisoned.add(-1)
    async with running_with_probes(bank.app) as world:
        await within((await world.app.submit(bank.order(1))).result())
        poison = await world.app.submit(bank.order(-1))
        await world.clock.advance(20)
        assert (await poison.view()).state == "compensated"
        assert await world.app.session.store.list_breakers() == []


async def test_many_orders_that_fail_open_it_although_others_succeed() -> None:
    bank = Bank(breaker=Breaker(minimum=2))
    bank.poisoned |= {-1, -2}
    async with running_with_probes(bank.app) as world:
        for number in (1, -1, -2):
            await world.app.submit(bank.order(number))
        await world.clock.advance(5)
        (row,) = await world.app.session.store.list_breakers()
        assert row.is_outage


async def test_refusals_are_answers_and_never_open_it(bank: Bank) -> None:
    bank.fails_with = Permanent("no such card", code="declined")
    async with running_with_probes(bank.app) as world:
        tasks = await _outage(bank, world, 60, 1)
        ended = await asyncio.gather(*(within(task.result()) for task in tasks), return_exceptions=True)
        assert all(isinstance(end, TaskFailed) for end in ended)
        assert await world.app.session.store.list_breakers() == []


async def test_the_service_s_own_word_opens_it_at_once_and_until_then(bank: Bank) -> None:
    bank.fails_with = Transient("503", retry_after=45, unavailable=True)
    async with running_with_probes(bank.app) as world:
        await _outage(bank, world, 30, 44)
        assert len(bank.calls) <= bank.agent.max_in_flight
        (row,) = await world.app.session.store.list_breakers()
        assert row.reason == "the service says that it is unavailable: 503"
        assert row.state is BreakerState.OPEN


async def test_without_a_breaker_and_a_retry_budget_the_attempts_are_spent_as_before() -> None:
    bank = Bank(breaker=None, retry_budget=None)
    async with running_with_probes(bank.app) as world:
        tasks = await _outage(bank, world, 30, 60)
        ended = await asyncio.gather(*(within(task.result()) for task in tasks), return_exceptions=True)
        assert all(isinstance(end, TaskFailed) for end in ended)
        assert len(bank.calls) == 30 * 9


async def test_each_target_has_a_breaker_of_its_own() -> None:
    bank = Bank(breaker=Breaker(minimum=5), breaker_key=lambda order: "north" if order % 2 else "south")
    async with running_with_probes(bank.app) as world:
        world.replace(bank.charge, by=_only_south)
        tasks = [await world.app.submit(bank.order(number), task_id=str(number)) for number in range(20)]
        for task in tasks[::2]:
            await within(task.result())
        await world.clock.advance(5)
        (row,) = await world.app.session.store.list_breakers()
        assert (row.label, row.state) == ("bank[north]", BreakerState.OPEN)
        assert [(await task.view()).state for task in tasks[1::2]] == ["processing"] * 10


def _only_south(order: int) -> int:
    if order % 2:
        raise ConnectionError("refused")
    return order


@pytest.mark.parametrize(
    ("key", "said"),
    [
        (lambda order: 1 / 0, "breaker_key failed for step charge: ZeroDivisionError: division by zero"),
        (
            lambda order: order,
            "breaker_key of Agent bank for step charge is 7; it must be a text of 1 to 255 characters",
        ),
        (lambda order: "", "breaker_key of Agent bank for step charge has 0 characters"),
    ],
)
async def test_a_key_that_raises_or_is_no_text_holds_its_task_and_says_so(key: Any, said: str) -> None:
    bank = Bank(breaker_key=key)
    async with running_with_probes(bank.app) as world:
        task = await world.app.submit(bank.order(7))
        with pytest.raises(TaskFailed) as failed:
            await within(task.result())
        assert said in failed.value.reason
        assert failed.value.state == "held"


async def test_silence_opens_it_too(bank: Bank) -> None:
    agent = Agent("mute", breaker=Breaker(minimum=5))

    @agent.step(complete_within=2, retry=Retry(tries=1), supervision=Supervision(attempts=2), effect_free=True)
    async def say(attempt: Attempt, number: int) -> None:
        await asyncio.Event().wait()

    async with testing.running(App("quiet", agents=[agent])) as world:
        for number in range(8):
            await world.app.submit(say(number), task_id=str(number))
        await world.clock.advance(4)
        (row,) = await world.app.session.store.list_breakers()
        assert row.state is BreakerState.OPEN
        assert "no answer within its time" in row.reason


async def test_a_service_that_hangs_opens_it_with_all_defaults() -> None:
    agent = Agent("hung")

    @agent.step(effect_free=True)
    async def say(attempt: Attempt, number: int) -> None:
        await asyncio.Event().wait()

    async with testing.running(App("quiet", agents=[agent])) as world:
        for number in range(10):
            await world.app.submit(say(number), task_id=str(number))
        await world.clock.advance(31)
        (row,) = await world.app.session.store.list_breakers()
        assert row.state is BreakerState.OPEN
        assert "calls failed in 30 s: no answer within its time" in row.reason


@pytest.fixture
def quick() -> Iterator[Bank]:
    yield Bank(breaker=Breaker(minimum=5, cool_off=0.2, ramp=0.2))


async def test_two_processes_share_it_and_places_come_back(machine: Machine, quick: Bank) -> None:
    quick.is_down = True
    first, second = machine.app([quick.agent], [quick.order]), machine.app([quick.agent], [quick.order])
    async with first.running(), second.running():
        tasks = [await app.submit(quick.order(number)) for number in range(30) for app in (first, second)]
        await machine.event("breaker.opened", agent="bank")
        quick.is_down = False
        for task in tasks:
            await within(task.result())
        for app in (first, second):
            assert session_of(app).agents.count_leaked_places() == 0


async def test_an_agent_whose_name_has_a_slip_is_not_paused_but_refused(bank: Bank) -> None:
    async with running_with_probes(bank.app) as world:
        for verb in ("open", "pause"):
            with pytest.raises(InvalidInput, match="there is no Agent 'bnak' in App 'shop'"):
                await getattr(world.app.agent("bnak"), verb)(by="ana", reason="they move")
        assert await world.app.session.store.list_breakers() == []
        assert (await world.app.agent("bank").pause(by="ana", reason="they move")).shown == "paused"


async def test_a_target_for_each_customer_leaves_no_window_of_calls_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(breakers, "WINDOWS_KEPT", 10)
    bank = Bank(breaker_key=lambda order: f"customer {order}")
    async with running_with_probes(bank.app) as world:
        for number in range(40):
            await within((await world.app.submit(bank.order(number))).result())
            await world.clock.advance(6)
        assert len(session_of(world.app).agents.hosted["bank"].breakers.windows) <= 11
