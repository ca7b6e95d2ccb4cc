"""Commits that wait for a synchronous standby: nothing is told as done, nor shown, that a fail-over could still lose."""

import asyncio
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any

import psycopg
import pytest
from store_checks import broken_links, disagreements, history_violations
from store_world import TestClock, World, step, submission
from waiting import HangLimit, call_until_answered, wait_until_async

from arriero import Agent, App, Attempt, OutcomeUnknown, StoreError, workflow
from arriero.model.answers import Applied, Submitted
from arriero.store.contract import Unanswered
from arriero.store.postgres import connect_pauses, lanes
from arriero.store.postgres import session as session_module
from arriero.store.postgres import store as store_module
from arriero.store.postgres.session import TransactionLimits
from arriero.store.postgres.store import PostgresStore
from lab.postgres import Pair

SECONDS_MAX = 120.0  # when a test counts as hanging

pay = Agent("pay")


@pay.step
async def charge(attempt: Attempt, order: str) -> str:
    return order


@workflow
async def fulfil(order: str) -> str:
    return await charge(order)


@pytest.fixture(scope="module")
def running() -> Iterator[Pair]:
    with Pair.start(durable=False) as made:
        yield made


@pytest.fixture
def pair(running: Pair) -> Iterator[Pair]:
    """Both servers up, the standby synchronous: whatever the test did is mended afterwards."""
    yield running
    for one in (running.primary, running.standby):
        one.resume()
    if not running.primary.running:
        running.primary.restart()
    if not running.standby.running or _asked(running.standby, "SELECT NOT pg_is_in_recovery()"):
        running.rebuild_standby()


def _asked(server: Any, query: str) -> Any:
    with psycopg.connect(server.url(), autocommit=True) as connection:
        return connection.execute(query.encode()).fetchone()[0]  # type: ignore[index]


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Waits for what a test keeps from coming are short."""
    for name in ("ENGINE", "SUBMISSIONS", "RENEWALS"):
        monkeypatch.setattr(lanes, name, TransactionLimits(lock=0.2, statement=3.0))
    monkeypatch.setattr(lanes, "OTHERS", TransactionLimits(lock=0.2, statement=3.0))
    monkeypatch.setattr(store_module, "DECIDED_SECONDS", 2.0)
    monkeypatch.setattr(store_module, "AGAIN_SECONDS", 0.02)
    monkeypatch.setattr(connect_pauses, "CONNECT_SECONDS_MAX", 0.0)
    monkeypatch.setattr(session_module, "ANSWER_SECONDS", -2.0)


@pytest.fixture
def url(pair: Pair) -> str:
    name = f"shop_{secrets.token_hex(4)}"
    pair.primary.create_database(name)
    return pair.url(name) + "&listen=off&connect_timeout=2"


@asynccontextmanager
async def opened(url: str, clock: TestClock | None = None) -> AsyncIterator[World]:
    clock = clock or TestClock()
    store = PostgresStore(url, clock=clock)
    await store.open()
    try:
        yield World(store, clock)
    finally:
        await asyncio.wait_for(store.close(), SECONDS_MAX)


@pytest.fixture
async def world(url: str) -> AsyncIterator[World]:
    async with opened(url) as made:
        await made.store.register("p1", 3.0)
        yield made


async def bounded(answer: Awaitable[Any]) -> Any:
    return await asyncio.wait_for(answer, SECONDS_MAX)


async def answered(call: Callable[[], Awaitable[Any]]) -> Any:
    """What is answered in the end."""
    return await call_until_answered(call, StoreError)


WAITS = "SELECT pid, xact_start::text FROM pg_stat_activity WHERE wait_event = 'SyncRep' ORDER BY xact_start DESC"
Waiting = tuple[int, str]  # a back end, and when the transaction that it commits began


def _on_primary(pair: Pair, statement: str) -> list[Any]:
    with psycopg.connect(pair.primary.url(), autocommit=True) as connection:
        return connection.execute(statement.encode()).fetchall()


async def waiting_for_standby(pair: Pair, *, after: Waiting | None = None) -> Waiting:
    """The youngest commit that waits for the standby, once there is one; a younger one than ``after``."""
    limit = HangLimit("a commit that waits for the standby")
    while True:
        found = await asyncio.to_thread(_on_primary, pair, WAITS)
        if found and (after is None or found[0][1] > after[1]):
            return int(found[0][0]), str(found[0][1])
        limit.check()
        await asyncio.sleep(0.01)


async def cut_short(pair: Pair, how: str) -> Waiting:
    """Cut the wait that there is, once there is one."""
    found = await waiting_for_standby(pair)
    await asyncio.to_thread(_on_primary, pair, how.format(pid=found[0]))
    return found


async def fail_over(pair: Pair) -> None:
    """The primary dies, its standby goes on with what it has."""
    pair.kill_primary()
    pair.standby.resume()
    if not pair.standby.running:
        await asyncio.to_thread(pair.standby.restart)
    await asyncio.to_thread(pair.promote)


async def checked(url: str, clock: TestClock) -> list[str]:
    """The store as it is for whoever comes now: whole; answers the ids of its tasks."""
    async with opened(url, clock) as seen:
        assert await history_violations(seen.store) == []
        assert await disagreements(seen.store) == []
        assert await broken_links(seen.store) == []
        return [task.task_id for task in await seen.store.list_tasks(limit=100_000)]


CUTS = {
    "the wait cancelled": "SELECT pg_cancel_backend({pid})",
    "the back end ended": "SELECT pg_terminate_backend({pid})",
}


@pytest.mark.parametrize("how", CUTS.values(), ids=CUTS.keys())
async def test_a_batch_whose_wait_for_the_standby_was_cut_is_not_done_before_the_standby_has_it(
    how: str, world: World, pair: Pair, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_module, "DECIDED_SECONDS", SECONDS_MAX)
    task = await world.held()
    pair.standby.pause()
    waiting = asyncio.ensure_future(world.store.apply([world.advance_command(task, opened=[step()])]))
    first = await cut_short(pair, how)
    await waiting_for_standby(pair, after=first)  # the judge: his answer needs a commit that the standby has
    assert not waiting.done()

    pair.standby.resume()

    (answer,) = await bounded(waiting)
    assert isinstance(answer, Applied)
    await fail_over(pair)
    async with opened(url, world.clock) as seen:
        assert (await seen.load(task.task_no)).steps == tuple(answer.steps)
    assert await checked(url, world.clock) == ["order-1"]


@pytest.mark.parametrize("how", CUTS.values(), ids=CUTS.keys())
async def test_a_batch_that_nobody_can_judge_is_unknown_and_what_a_fail_over_lost_was_never_shown(
    how: str, world: World, pair: Pair, url: str
) -> None:
    task = await world.held()
    pair.standby.kill()  # one that is only paused would find it in its socket afterwards
    waiting = asyncio.ensure_future(world.store.apply([world.advance_command(task, opened=[step()])]))
    await cut_short(pair, how)

    with pytest.raises(Unanswered):
        await bounded(waiting)
    with pytest.raises(StoreError):  # it is on the primary, and must not be seen there
        await bounded(world.store.load(task.task_no))
    with pytest.raises(StoreError):
        await bounded(world.store.history().__anext__())

    await fail_over(pair)
    seen = await answered(lambda: world.store.load(task.task_no))
    assert seen.steps == ()  # the standby had not got it
    (answer,) = await answered(lambda: world.store.apply([world.advance_command(task, opened=[step()])]))
    assert isinstance(answer, Applied)
    assert await checked(url, world.clock) == ["order-1"]


async def test_a_batch_that_was_given_up_while_it_waited_is_answered_when_the_standby_is_back(
    world: World, pair: Pair, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_module, "DECIDED_SECONDS", SECONDS_MAX)
    task = await world.held()
    pair.standby.pause()
    waiting = asyncio.ensure_future(world.store.apply([world.advance_command(task, opened=[step()])]))
    await waiting_for_standby(pair)
    engine, _ = world.store._lanes["engine"]
    engine.cut()
    assert not waiting.done()

    pair.standby.resume()

    (answer,) = await bounded(waiting)
    assert isinstance(answer, Applied)
    assert await checked(url, world.clock) == ["order-1"]


async def test_what_another_process_committed_without_the_standby_is_not_shown_to_a_store_that_lost_an_answer(
    world: World, pair: Pair
) -> None:
    """Its own renewal was confirmed by a warning only: from then on it reads nothing before a clean write."""
    await world.submit()
    await world.store.renew(1, 3.0)
    pair.standby.pause()
    waiting = asyncio.ensure_future(world.store.renew(1, 3.0))
    await cut_short(pair, CUTS["the wait cancelled"])
    with pytest.raises(StoreError):
        await bounded(waiting)
    with pytest.raises(StoreError):
        await bounded(world.store.list_tasks())

    pair.standby.resume()

    assert len(await answered(world.store.list_tasks)) == 1
    assert (await answered(lambda: world.store.renew(1, 3.0))).renewed


@pytest.mark.parametrize("how", CUTS.values(), ids=CUTS.keys())
async def test_a_submission_whose_wait_was_cut_is_new_once_and_only_when_the_standby_has_it(
    how: str, world: World, pair: Pair, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_module, "DECIDED_SECONDS", SECONDS_MAX)
    pair.standby.pause()
    waiting = asyncio.ensure_future(world.store.submit([submission()]))
    first = await cut_short(pair, how)
    await waiting_for_standby(pair, after=first)  # it submits again, and that commit waits
    assert not waiting.done()

    pair.standby.resume()

    (answer,) = await bounded(waiting)
    assert answer == Submitted(answer.task_no, True)
    await fail_over(pair)
    assert await checked(url, world.clock) == ["order-1"]


@pytest.mark.parametrize("how", CUTS.values(), ids=CUTS.keys())
async def test_a_submission_that_cannot_be_decided_is_an_outcome_unknown_and_can_be_submitted_again(
    how: str, url: str, pair: Pair
) -> None:
    app = App("shop", agents=[pay], workflows=[fulfil], store=url)
    async with app:
        await app.submit(fulfil("one"), task_id="one")
        pair.standby.kill()
        waiting = asyncio.ensure_future(app.submit(fulfil("two"), task_id="two"))
        await cut_short(pair, how)
        with pytest.raises(OutcomeUnknown) as caught:
            await bounded(waiting)
        assert caught.value.task_id == "two"
        await fail_over(pair)  # and the standby had not got it
        await answered(lambda: app.submit(fulfil("two"), task_id="two"))
    assert await checked(url, TestClock()) == ["one", "two"]


async def test_a_submission_that_only_waits_too_long_is_an_outcome_unknown_and_known_when_the_standby_is_back(
    url: str, pair: Pair
) -> None:
    app = App("shop", agents=[pay], workflows=[fulfil], store=url)
    async with app:
        await app.submit(fulfil("one"), task_id="one")
        pair.standby.pause()
        with pytest.raises(OutcomeUnknown):
            await bounded(app.submit(fulfil("two"), task_id="two"))
        pair.standby.resume()
        await answered(lambda: app.submit(fulfil("two"), task_id="two"))
    assert await checked(url, TestClock()) == ["one", "two"]


async def test_nothing_acknowledged_is_lost_when_the_primary_dies_under_load(
    world: World, pair: Pair, url: str
) -> None:
    acknowledged: list[str] = []
    unknown: list[str] = []
    enough, ending = asyncio.Event(), asyncio.Event()

    async def customer(number: int) -> None:
        count = 0
        while not ending.is_set():
            task_id = f"order-{number}-{count}"
            count += 1
            try:
                (answer,) = await world.store.submit([submission(task_id, seed=hash(task_id))])
            except StoreError:
                unknown.append(task_id)
                await asyncio.sleep(0.02)
            else:
                assert answer.created
                acknowledged.append(task_id)
                if len(acknowledged) >= 40:
                    enough.set()

    customers = [asyncio.ensure_future(customer(number)) for number in range(4)]
    await bounded(enough.wait())
    await fail_over(pair)
    before = len(acknowledged)
    await wait_until_async(lambda: len(acknowledged) >= before + 10, "submissions after the fail-over")
    ending.set()
    await bounded(asyncio.gather(*customers))

    kept = await checked(url, world.clock)
    assert set(acknowledged) <= set(kept)
    assert set(kept) <= set(acknowledged) | set(unknown)
    assert len(kept) == len(set(kept))
