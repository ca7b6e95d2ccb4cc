"""Retry budgets in a process: retries wait, nothing is spent meanwhile, and what waits holds no place."""

import asyncio
import logging
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from runtime_world import session_of, within

from arriero import Agent, App, Attempt, Retry, Supervision, Transient, testing, workflow
from arriero.core.capacity import BURST, PER_SECOND
from arriero.runtime.ports import Timer
from arriero.runtime.retry_budgets import AgentRetries


class Flaky:
    """A service that refuses the first ``refusals`` calls of each order. ``calls``: when, and for which order."""

    def __init__(self, *, refusals: int, tries: int, complete_within: float = 30, **options: Any) -> None:
        self.calls: list[tuple[float, int]] = []
        self.now = lambda: 0.0
        self.agent = Agent("bank", breaker=None, **options)
        seen: dict[int, int] = {}

        @self.agent.step(
            retry=Retry(tries=tries, delay=0.1),
            supervision=Supervision(attempts=3),
            complete_within=complete_within,
            effect_free=True,
        )
        async def charge(attempt: Attempt, order: int) -> int:
            self.calls.append((self.now(), order))
            seen[order] = seen.get(order, 0) + 1
            if seen[order] <= refusals:
                raise Transient("busy")
            return order

        @workflow
        async def order(number: int) -> int:
            return await charge(number)

        self.order = order
        self.app = App("shop", agents=[self.agent], workflows=[order])

    def count_retries(self) -> int:
        return len(self.calls) - len({order for _, order in self.calls})


async def _run(flaky: Flaky, orders: int) -> tuple[list[Any], list[int], int]:
    """Run so many orders to their ends. Returns: what they gave, their failure counts, and the places that leaked."""
    async with testing.running(flaky.app) as world:
        flaky.now = lambda: world.clock.now().timestamp()
        tasks = [await world.app.submit(flaky.order(number)) for number in range(orders)]
        ended = await asyncio.gather(*(within(task.result()) for task in tasks), return_exceptions=True)
        store = world.app.session.store
        loaded = [await store.load(task.task_no) for task in await store.list_tasks()]
        failures = [step.failure_count for of_task in loaded if of_task is not None for step in of_task.steps]
        return ended, failures, session_of(world.app).agents.count_leaked_places()


def _is_within_budget(flaky: Flaky, share: float) -> bool:
    first: set[int] = set()
    marked = [(at, order in first or first.add(order) is not None) for at, order in flaky.calls]
    for start in range(len(marked)):
        retries = 0
        for end in range(start, len(marked)):
            retries += marked[end][1]
            floor = BURST + PER_SECOND * (marked[end][0] - marked[start][0])
            if retries > share * (end - start + 1) + floor + 1e-6:
                return False
    return True


@pytest.mark.parametrize(("tries", "refusals"), [(3, 1), (1, 1), (2, 2)])
async def test_retries_of_tries_and_attempts_are_kept_within_the_budget_and_every_order_ends_well(
    tries: int, refusals: int
) -> None:
    flaky = Flaky(refusals=refusals, tries=tries)
    ended, _, leaked = await _run(flaky, 30)
    assert ended == list(range(30))
    assert flaky.count_retries() == 30 * refusals
    assert _is_within_budget(flaky, 0.2)
    assert leaked == 0


async def test_without_a_budget_they_come_all_at_once() -> None:
    flaky = Flaky(refusals=1, tries=1, retry_budget=None)
    ended, _, _ = await _run(flaky, 30)
    assert ended == list(range(30))
    assert not _is_within_budget(flaky, 0.2)


async def test_an_attempt_that_waits_in_the_store_spends_nothing() -> None:
    flaky = Flaky(refusals=1, tries=1)
    _, failures, _ = await _run(flaky, 60)
    assert failures == [1] * 60  # the call that failed, and nothing for the wait


async def test_a_retry_that_waits_holds_no_place_of_first_calls() -> None:
    flaky = Flaky(refusals=1, tries=2, max_in_flight=2)
    await _run(flaky, 60)
    begun = {order: at for at, order in reversed(flaky.calls)}
    assert max(begun.values()) - min(begun.values()) < 5  # 50 retries need 40 s beyond the burst


async def test_an_attempt_whose_time_ends_in_the_wait_fails_by_its_last_call_and_does_not_expire() -> None:
    flaky = Flaky(refusals=1, tries=2, complete_within=3)
    async with testing.running(flaky.app) as world:
        tasks = [await world.app.submit(flaky.order(number)) for number in range(30)]
        ended = await asyncio.gather(*(within(task.result()) for task in tasks))
        assert ended == list(range(30))
        events = [event async for event in _events(world.app.session.store)]
        assert not [event for event in events if event.get("cause") == "expired"]
        assert session_of(world.app).agents.count_leaked_places() == 0


async def _events(store: Any) -> Any:
    async for row in store.history():
        for event in msgspec.json.decode(row.events):
            yield event


@pytest.mark.parametrize("tries", [2, 1])
async def test_the_log_says_that_retries_wait_and_what_to_do(tries: int, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "arriero"):
        await _run(Flaky(refusals=1, tries=tries), 60)
    told = [record.message for record in caplog.records if "retry budget" in record.message]
    assert told[0].startswith("retries of Agent bank are held to its retry budget: 20% of its calls in this process")
    assert told[0].endswith("or raise Agent('bank', retry_budget=...)")
    assert len(told) == 1  # in a minute


class StillClock:
    """A clock that stands still. ``waits``: seconds after which something would be called."""

    def __init__(self) -> None:
        self.waits: list[float] = []

    def monotonic(self) -> float:
        return 0.0

    async def sleep(self, seconds: float) -> None:
        raise AssertionError("nobody waits here")

    async def idle(self, event: asyncio.Event, seconds: float) -> None:
        raise AssertionError("nobody waits here")

    def call_later(self, seconds: float, callback: Callable[[], None]) -> Timer:
        self.waits.append(seconds)
        return asyncio.get_running_loop().call_later(0, callback)


@pytest.fixture
def clock() -> StillClock:
    return StillClock()


@pytest.fixture
def spent(clock: StillClock) -> AgentRetries:
    """The budget of an Agent that has spent it, while time stands still."""
    made = AgentRetries(Agent("bank", retry_budget=0.2), clock, lambda: None)
    assert [made.may_retry() for _ in range(int(BURST) + 1)] == [True] * int(BURST) + [False]
    return made


def test_five_calls_that_have_begun_allow_one_retry_of_a_try(spent: AgentRetries) -> None:
    for _ in range(5):
        assert not spent.may_retry()
        spent.note_call()
    assert [spent.may_retry() for _ in range(2)] == [True, False]


def test_five_calls_that_have_begun_allow_one_retry_in_a_take(spent: AgentRetries, clock: StillClock) -> None:
    for _ in range(5):
        assert spent.keep_for_take(3) == 0
        spent.lose_take()
        spent.note_call()
    assert spent.keep_for_take(3) == 1
    assert AgentRetries(Agent("free", retry_budget=None), clock, lambda: None).keep_for_take(3) is None


async def test_calls_that_have_begun_bring_the_next_take_forward(spent: AgentRetries, clock: StillClock) -> None:
    for _ in range(2):
        spent.note_call()  # two fifths of a token: the rest takes 0.6 s
    spent.keep_for_take(1)
    for _ in range(2):
        spent.note_call()
    spent.settle_take([])
    assert clock.waits == [pytest.approx(0.2)]
