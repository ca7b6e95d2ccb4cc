"""Calls of Agents on their way into the store: what is counted, when it is written, what a death costs."""

import asyncio
from typing import Any

import pytest
from runtime_world import Machine, eventually, session_of, until, within

from arriero import (
    Agent,
    App,
    Attempt,
    Breaker,
    InvalidInput,
    Permanent,
    Retry,
    StoreError,
    Supervision,
    Transient,
    testing,
)
from arriero.client.agent_metrics import AgentMetrics, CallOutcomes
from arriero.core.agent_metrics import MINUTE, OUTCOMES, read_counts
from arriero.inspection.facts import CountsRow
from arriero.model import Instant
from arriero.runtime import call_monitor
from arriero.runtime.call_monitor import ADDED_UP_AT, CallCounter, EndedCall
from arriero.store.state_store import StateStore
from arriero.testing import World

NOON = 28_000_000
bank = Agent("bank", breaker=None)
post = Agent("post", breaker=Breaker(), breaker_key=lambda kind: kind)
SECRET = "card 4111-1111"


@bank.step(complete_within=5, retry=Retry(tries=2, delay=0), supervision=Supervision(attempts=1), effect_free=True)
async def charge(attempt: Attempt, end: str) -> int:
    match end:
        case "transient":
            raise Transient(SECRET)
        case "permanent":
            raise Permanent(SECRET, code=SECRET)
        case "unknown":
            raise ValueError(SECRET)
        case "expired":
            await asyncio.Event().wait()
    return 1


@post.step(effect_free=True)
async def send(attempt: Attempt, kind: str) -> str:
    return kind


APP = App("shop", agents=[bank, post])


def at(minute: int) -> Instant:
    return Instant(minute * MINUTE)


@pytest.fixture
def counter() -> CallCounter:
    return CallCounter("shop", 7)


# --- the counter
def test_a_minute_is_listed_as_it_stands_until_the_store_has_all_of_it(counter: CallCounter) -> None:
    assert not counter.has_unwritten
    for _ in range(3):
        counter.add("bank", EndedCall("succeeded", 0.1), at(NOON))
    assert counter.has_unwritten
    first = counter.list_unwritten(at(NOON))
    assert [(row.app, row.process_no, row.minute, row.calls) for row in first] == [("shop", 7, NOON, 3)]
    counter.add("bank", EndedCall("transient", 0.1), at(NOON))
    counter.note_written(first)
    assert counter.has_unwritten
    (again,) = counter.list_unwritten(at(NOON))
    assert read_counts(again.counts)["bank"].outcomes == {"succeeded": 3, "transient": 1}
    counter.note_written([again])
    assert not counter.has_unwritten
    assert counter.list_unwritten(at(NOON)) == []


def test_after_a_write_a_minute_grows_on_from_what_was_written(counter: CallCounter) -> None:
    for number in range(1, 4):
        counter.add("bank", EndedCall("succeeded", 0.1), at(NOON))
        rows = counter.list_unwritten(at(NOON))
        assert [row.calls for row in rows] == [number]
        counter.note_written(rows)


def test_minutes_that_could_not_be_written_wait_and_are_dropped_when_the_store_takes_them_no_more(
    counter: CallCounter,
) -> None:
    for minute in range(NOON, NOON + 60):
        counter.add("bank", EndedCall("succeeded", 0.1), at(minute))
    listed = [row.minute for row in counter.list_unwritten(at(NOON + 59))]
    assert listed == list(range(NOON + 59 - 51, NOON + 60))
    counter.note_written(counter.list_unwritten(at(NOON + 59)))
    counter.add("bank", EndedCall("succeeded", 0.1), at(NOON + 60))
    assert [row.minute for row in counter.list_unwritten(at(NOON + 60))] == [NOON + 60]


def test_a_clock_that_goes_back_opens_no_minute_again(counter: CallCounter) -> None:
    counter.add("bank", EndedCall("succeeded", 0.1), at(NOON))
    counter.note_written(counter.list_unwritten(at(NOON)))
    counter.add("bank", EndedCall("succeeded", 0.1), at(NOON - 5))
    assert [(row.minute, row.calls) for row in counter.list_unwritten(at(NOON - 5))] == [(NOON, 2)]


def test_a_clock_that_jumps_ahead_loses_what_was_not_written_and_counts_nothing_twice(counter: CallCounter) -> None:
    counter.add("bank", EndedCall("succeeded", 0.1), at(NOON))
    counter.note_written(counter.list_unwritten(at(NOON)))
    counter.add("bank", EndedCall("succeeded", 0.1), at(NOON))
    assert counter.list_unwritten(at(NOON + 90)) == []
    assert not counter.has_unwritten
    counter.add("bank", EndedCall("succeeded", 0.1), at(NOON + 90))
    assert [(row.minute, row.calls) for row in counter.list_unwritten(at(NOON + 90))] == [(NOON + 90, 1)]


def test_many_calls_between_two_writes_are_all_counted(counter: CallCounter) -> None:
    for number in range(2 * ADDED_UP_AT + 5):
        counter.add(f"agent-{number % 1_000}", EndedCall("succeeded", 0.1), at(NOON))
    (row,) = counter.list_unwritten(at(NOON))
    assert (row.calls, len(read_counts(row.counts))) == (2 * ADDED_UP_AT + 5, 1_000)


# --- in a process
async def _metrics(world: World, agent: str) -> AgentMetrics:
    (found,) = (await world.app.metrics(agent=agent)).agents
    return found


async def test_each_try_is_a_call_and_ends_as_it_did_also_without_a_breaker() -> None:
    async with testing.running(APP) as world:
        for end in OUTCOMES:
            task = await world.app.submit(charge(end))
            await asyncio.gather(within(task.result()), return_exceptions=True)
        await within((await world.app.submit(send("letter"))).result())
        await world.clock.advance(10)
        found = await _metrics(world, "bank")
        assert found.total.outcomes == CallOutcomes(succeeded=1, transient=2, permanent=1, unknown=2, expired=1)
        assert (found.app, found.total.calls, sum(found.total.buckets)) == ("shop", 7, 7)
        assert found.total.seconds == pytest.approx(5, abs=0.5)
        assert found.recent[0].failed_share == pytest.approx(5 / 7)
        assert (await _metrics(world, "post")).total.outcomes == CallOutcomes(succeeded=1)
        assert SECRET not in str(await world.app.session.store.measure_agents())


async def test_nothing_is_written_while_no_call_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    async with testing.running(APP) as world:
        store, asked = world.app.session.store, []
        put = store.put_agent_counts

        async def count_writes(rows: Any) -> None:
            asked.append(rows)
            await put(rows)

        monkeypatch.setattr(store, "put_agent_counts", count_writes)
        await world.clock.advance(3_600)
        assert asked == []
        await within((await world.app.submit(send("letter"))).result())
        await world.clock.advance(9)
        await world.clock.advance(3_600)
        assert [[row.calls for row in rows] for rows in asked] == [[1]]


async def test_a_write_that_fails_or_whose_answer_is_lost_is_repeated_and_counts_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with testing.running(APP) as world:
        store, failures = world.app.session.store, ["before", "after", "before"]
        put = store.put_agent_counts

        async def fail(rows: Any) -> None:
            when = failures.pop(0) if failures else ""
            if when != "before":
                await put(rows)
            if when:
                raise StoreError("cut off")

        monkeypatch.setattr(store, "put_agent_counts", fail)
        for seconds in (10, 10, 10, 10):
            await within((await world.app.submit(send("letter"))).result())
            await world.clock.advance(seconds)
        assert failures == []
        assert (await _metrics(world, "post")).total.calls == 4


async def test_the_counters_never_go_back_while_minutes_are_folded() -> None:
    async with testing.running(APP) as world:
        totals = []
        for number in range(1, 13):
            await within((await world.app.submit(send("letter"))).result())
            await world.clock.advance(1_000)
            totals.append((await _metrics(world, "post")).total.calls)
            assert totals[-1] == number
        rows = (await world.app.session.store.measure_agents()).counts
        assert [row.process_no for row in rows].count(0) == 1
        assert 3 <= len(rows) <= 6


# --- several processes
async def _find_counts(store: StateStore, calls: int) -> tuple[CountsRow, ...] | None:
    """The rows, once they hold so many calls."""
    rows = (await store.measure_agents()).counts
    return rows if sum(row.calls for row in rows) >= calls else None


async def test_two_processes_add_up_and_what_they_counted_is_there_when_they_have_left(machine: Machine) -> None:
    first, second = machine.app([post]), machine.app([post])
    async with first.running(), second.running():
        for number in range(10):
            app = (first, second)[number % 2]
            await within((await app.submit(send("letter"))).result())
    async with machine.app() as client:
        (found,) = (await client.metrics()).agents
        assert (found.agent, found.app, found.total.calls) == ("post", "machine", 10)
        assert [recent.calls for recent in found.recent] == [10, 10, 10]
        (view,) = await client.agents_view()
        assert (view.processes, view.metrics) == ((), found)


async def test_a_process_that_is_lost_keeps_what_it_wrote_and_begins_again_with_counts_of_its_own(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(call_monitor, "WRITE_SECONDS", 0.01)
    app = machine.app([post])
    async with app.running():
        lost = session_of(app)
        await within((await app.submit(send("letter"))).result())
        store = app.session.store
        await eventually(lambda: _find_counts(store, 1))
        lost.lost.set()
        await until(lambda: app.session.node is not None and app.session.node.session not in (None, lost))
        await within((await app.submit(send("letter"))).result())
        rows = await eventually(lambda: _find_counts(store, 2))
        assert [row.calls for row in rows] == [1, 1]


# --- what people ask
async def test_an_agent_that_nobody_knows_is_refused_and_one_of_this_app_is_not() -> None:
    async with testing.running(APP) as world:
        for name, said in (("nope", "there is no Agent 'nope'; see `arriero agent list`"), ("", "has 0 characters")):
            with pytest.raises(InvalidInput, match=said):
                await world.app.metrics(agent=name)
        found = await _metrics(world, "bank")
        assert (found.total.calls, found.recent[2].p99_seconds, found.recent[2].failed_share) == (0, None, None)
        assert [(gauge.target, gauge.state, gauge.paused) for gauge in found.breakers] == [("", "closed", False)]
    with pytest.raises(InvalidInput, match="is not open"):
        await App("shop", agents=[bank]).metrics()


async def test_gauges_tell_what_waits_and_how_the_breakers_stand() -> None:
    gate = asyncio.Event()
    slow = Agent("slow", max_in_flight=1, breaker_key=lambda kind: kind)

    @slow.step(effect_free=True, complete_within=1_000)
    async def hold(attempt: Attempt, kind: str) -> None:
        await gate.wait()

    async with testing.running(App("shop", agents=[slow])) as world:
        tasks = [await world.app.submit(hold("north")) for _ in range(3)]
        await world.clock.advance(20)
        await world.app.agent("slow", target="south").pause(by="ana", reason="they move")
        found = await _metrics(world, "slow")
        assert (found.in_flight, found.waiting) == (1, 2)
        assert found.oldest_wait_seconds == pytest.approx(20, abs=1)
        assert [(gauge.target, gauge.paused) for gauge in found.breakers] == [("", False), ("south", True)]
        gate.set()
        for task in tasks:
            await within(task.result())
        assert (await _metrics(world, "slow")).oldest_wait_seconds is None
