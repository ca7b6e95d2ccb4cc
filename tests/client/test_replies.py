"""Reply queues as their reader sees them: in order, each at least once, acknowledged by taking the next."""

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from datetime import UTC, datetime
from typing import Any

import pytest
from runtime_world import SECONDS_MAX, Machine, within

from arriero import (
    Agent,
    App,
    ArrieroError,
    Attempt,
    InvalidInput,
    Permanent,
    StoreError,
    Supervision,
    TaskFailed,
    Undo,
    testing,
    workflow,
)
from arriero.client.replies import PAGE, Replies, Status
from arriero.store.state_store import StateStore

WEB = "web-1"
DAY = 86_400
KEEP_DAYS = 7  # as configured by default
payments = Agent("payments")
broken: set[str] = set()


@pytest.fixture(autouse=True)
def everything_works() -> None:
    broken.clear()


@payments.step(supervision=Supervision(attempts=1))
async def charge(attempt: Attempt, card: str) -> str:
    if card in broken:
        raise Permanent(f"the {card} card is refused", code="refused")
    return f"charged the {card} card"


@charge.compensation(supervision=Supervision(attempts=1))
async def refund(undo: Undo[str], card: str) -> None:
    if "refund" in broken:
        raise Permanent("the bank is closed", code="closed")


@workflow
async def order(cards: list[str]) -> list[str]:
    return [await charge(card) for card in cards]


@workflow(supervision=Supervision(then="hold"))
async def held_order(card: str) -> str:
    return await charge(card)


@workflow
async def nothing() -> None: ...


def shop(machine: Machine) -> App:
    return machine.app([payments], [order, held_order, nothing])


@pytest.fixture
async def world() -> AsyncIterator[testing.World]:
    """The shop on the memory store and a virtual clock."""
    async with testing.running(App("shop", agents=[payments], workflows=[order, held_order, nothing])) as running:
        yield running


@pytest.fixture
async def client(machine: Machine) -> AsyncIterator[App]:
    """The shop on a file; nobody runs it."""
    async with shop(machine) as opened:
        yield opened


async def taken(replies: Replies) -> list[Status]:
    """All there is now."""
    found: list[Status] = []
    while (status := await replies.next_ready()) is not None:
        found.append(status)
    return found


async def ended(app: App, task_id: str) -> None:
    """Wait until a task has ended, well or not."""
    try:
        await within(app.task(task_id).result())
    except TaskFailed:
        return


async def told(app: App) -> list[tuple[int, str]]:
    return [(status.number, status.kind) for status in await taken(app.replies(WEB))]


def numbered(*kinds: str) -> list[tuple[int, str]]:
    return list(enumerate(kinds, start=1))


def names(statuses: Sequence[Status]) -> list[str]:
    return [status.task_id for status in statuses]


# --- every way a task may go
async def test_a_task_that_goes_well(world: testing.World) -> None:
    task = await world.app.submit(order(["good"]), task_id="t", reply_to=WEB)
    await task.result()
    received, started, completed = await taken(world.app.replies(WEB))
    assert [received.kind, started.kind, completed.kind] == ["received", "started", "completed"]
    assert completed.output == ["charged the good card"]
    assert (received.task_id, received.workflow, received.queue, received.incarnation) == ("t", "order", WEB, 1)
    assert received.at.tzinfo is not None


async def test_a_task_that_is_undone(world: testing.World) -> None:
    broken.add("bad")
    await world.app.submit(order(["good", "bad"]), task_id="t", reply_to=WEB)
    await ended(world.app, "t")
    *_, failed, compensated = found = await taken(world.app.replies(WEB))
    assert [(s.number, s.kind) for s in found] == numbered("received", "started", "failed", "compensated")
    assert "refused" in failed.reason
    assert (failed.cause, failed.step, failed.code) == ("step", "charge", "refused")
    assert (compensated.step, compensated.code, compensated.output) == ("charge", "refused", None)


async def test_a_task_that_is_held_and_resubmitted(world: testing.World) -> None:
    broken.add("bad")
    task = await world.app.submit(held_order("bad"), task_id="t", reply_to=WEB)
    await ended(world.app, "t")
    await task.resubmit(by="ana", reason="another card", arguments={"card": "good"})
    assert await task.result() == "charged the good card"
    assert await told(world.app) == numbered("received", "started", "held", "started", "completed")


async def test_a_task_that_is_compensated_by_hand_with_an_undo_that_fails_first(world: testing.World) -> None:
    task = await world.app.submit(order(["good"]), task_id="t", reply_to=WEB)
    await task.result()
    broken.add("refund")
    await task.compensate(by="ana", reason="sent back")
    await ended(world.app, "t")
    broken.clear()
    await task.resubmit(by="ana", reason="the bank is open")
    await ended(world.app, "t")
    expected = ["received", "started", "completed", "failed", "held", "failed", "compensated"]
    statuses = await taken(world.app.replies(WEB))
    assert [(s.number, s.kind) for s in statuses] == numbered(*expected)
    assert [s.incarnation for s in statuses] == [1, 1, 1, 2, 2, 3, 3]
    assert statuses[3].cause == "person"


async def test_a_task_that_is_cancelled_before_it_began(world: testing.World) -> None:
    task = await world.app.submit(order(["good"]), task_id="t", reply_to=WEB, delay=60)
    await task.cancel(by="ana", reason="too late")
    await ended(world.app, "t")
    assert await told(world.app) == numbered("received", "failed", "compensated")


async def test_a_task_that_is_run_anew(world: testing.World) -> None:
    broken.add("bad")
    task = await world.app.submit(order(["good", "bad"]), task_id="t", reply_to=WEB)
    await ended(world.app, "t")
    broken.clear()
    await task.resubmit(by="ana", reason="the card works")
    await task.result()
    kinds = ["received", "started", "failed", "compensated", "started", "completed"]
    assert await told(world.app) == numbered(*kinds)


async def test_a_task_of_one_step_is_told_of_too(world: testing.World) -> None:
    task = await world.app.submit(charge("good"), task_id="t", reply_to=WEB)
    await task.result()
    *_, completed = await taken(world.app.replies(WEB))
    assert (completed.workflow, completed.output) == ("step:charge", "charged the good card")


async def test_a_task_without_an_output_is_completed_with_none(world: testing.World) -> None:
    await (await world.app.submit(nothing(), reply_to=WEB)).result()
    assert (await taken(world.app.replies(WEB)))[-1].output is None


async def test_of_the_same_submission_only_the_first_is_told(client: App) -> None:
    for queue in (WEB, WEB, "another", None):
        await client.submit(nothing(), task_id="t", reply_to=queue)
    with pytest.raises(InvalidInput, match="exists with another workflow"):
        await client.submit(order(["good"]), task_id="t", reply_to=WEB)
    assert await told(client) == numbered("received")
    assert await client.replies("another").next_ready() is None


# --- names
@pytest.mark.parametrize("name", ["", "x" * 256, "a\0b", "a\nb", "\x1b[31m", "\ud800", 7, b"web", ["web"], True])
async def test_what_is_no_name_for_a_queue_is_refused_and_nothing_is_submitted(client: App, name: Any) -> None:
    with pytest.raises(InvalidInput, match="^reply_to "):
        await client.submit(nothing(), task_id="t", reply_to=name)
    with pytest.raises(InvalidInput, match="^reply queue "):
        client.replies(name)
    assert await client.tasks().count() == 0


@pytest.mark.parametrize("name", ["x" * 255, "🫏", "'; DROP TABLE arriero_status; --", "%", " web ", "ä/b?c#d"])
async def test_any_other_text_is_a_name_for_a_queue(client: App, name: str) -> None:
    await client.submit(nothing(), task_id="t", reply_to=name)
    status = await client.replies(name).next_ready()
    assert status is not None
    assert (status.queue, json.loads(json.dumps(status.cloud_event()))["data"]["queue"]) == (name, name)


async def test_an_app_that_is_not_open_has_no_queues(machine: Machine) -> None:
    with pytest.raises(InvalidInput, match="is not open"):
        shop(machine).replies(WEB)


# --- order, and at least once
async def submitted(app: App, *task_ids: str) -> None:
    for task_id in task_ids:
        await app.submit(nothing(), task_id=task_id, reply_to=WEB)


async def test_messages_come_in_the_order_of_their_commits(client: App) -> None:
    await submitted(client, "c", "a", "b")
    assert names(await taken(client.replies(WEB))) == ["c", "a", "b"]


async def test_more_messages_than_are_read_at_a_time_come_once_each_and_in_order(client: App) -> None:
    task_ids = [f"{number:04}" for number in range(2 * PAGE + 7)]
    await asyncio.gather(*(client.submit(nothing(), task_id=name, reply_to=WEB) for name in task_ids))
    found = await taken(client.replies(WEB))
    assert names(found) == task_ids
    assert await taken(client.replies(WEB)) == []


async def test_taking_the_next_acknowledges_the_one_before(client: App) -> None:
    await submitted(client, "a", "b", "c")
    first = client.replies(WEB)
    assert names([await anext(first), await anext(first)]) == ["a", "b"]
    await first.aclose()
    assert names(await taken(client.replies(WEB))) == ["b", "c"]
    assert await taken(client.replies(WEB)) == []


async def test_asking_in_vain_for_the_next_acknowledges_the_last(client: App) -> None:
    await submitted(client, "a")
    replies = client.replies(WEB)
    assert names([await anext(replies)]) == ["a"]
    assert await replies.next_ready() is None
    await replies.aclose()
    assert await taken(client.replies(WEB)) == []


async def test_leaving_the_loop_leaves_the_last_one_for_the_next_reader(client: App) -> None:
    await submitted(client, "a", "b", "c", "d")
    async for status in client.replies(WEB):
        if status.task_id == "b":
            break
    async for status in client.replies(WEB):
        assert status.task_id == "b"
        break
    assert names(await taken(client.replies(WEB))) == ["b", "c", "d"]


async def test_an_error_in_the_loop_leaves_the_one_it_came_of_for_the_next_reader(client: App) -> None:
    await submitted(client, "a", "b", "c")
    with pytest.raises(ZeroDivisionError):
        async for status in client.replies(WEB):
            if status.task_id == "b":
                raise ZeroDivisionError
    assert names(await taken(client.replies(WEB))) == ["b", "c"]


async def test_acknowledging_at_once_leaves_nothing_behind(client: App) -> None:
    await submitted(client, "a")
    replies = client.replies(WEB)
    await anext(replies)
    replies.acknowledge()
    replies.acknowledge()
    await replies.aclose()
    assert await taken(client.replies(WEB)) == []


async def test_a_reader_of_another_process_goes_on_where_the_first_one_stopped(machine: Machine) -> None:
    async with shop(machine) as first:
        await submitted(first, "a", "b", "c")
        replies = first.replies(WEB)
        assert names([await anext(replies), await anext(replies)]) == ["a", "b"]
    async with shop(machine) as second:  # the first was closed: what it acknowledged is written
        assert names(await taken(second.replies(WEB))) == ["b", "c"]


async def test_two_readers_get_each_message_at_least_once_between_them(client: App) -> None:
    task_ids = [f"{number:03}" for number in range(2 * PAGE)]
    one, other = client.replies(WEB), client.replies(WEB)
    found: dict[str, list[str]] = {"one": [], "other": []}

    async def read(name: str, replies: Replies) -> None:
        async for status in replies:
            found[name].append(status.task_id)
            if status.task_id == task_ids[-1]:
                return

    async with asyncio.timeout(SECONDS_MAX), asyncio.TaskGroup() as group:
        group.create_task(read("one", one))
        group.create_task(read("other", other))
        await submitted(client, *task_ids)
    assert set(found["one"]) | set(found["other"]) == set(task_ids)
    for heard in found.values():
        assert heard == sorted(heard)  # each of them in order
    for replies in (one, other):
        assert await replies.next_ready() is None


async def test_two_queues_are_read_independently(client: App) -> None:
    await submitted(client, "a")
    await client.submit(nothing(), task_id="b", reply_to="web-2")
    one, other = client.replies(WEB), client.replies("web-2")
    assert names([await anext(one), await anext(other)]) == ["a", "b"]
    assert await one.next_ready() is None
    assert names(await taken(client.replies("web-2"))) == ["b"]


# --- waiting
async def test_a_reader_that_waits_is_told_as_soon_as_there_is_something(machine: Machine) -> None:
    app = shop(machine)
    async with app.running():
        waiting = asyncio.ensure_future(anext(app.replies(WEB)))
        await submitted(app, "a")
        assert names([await within(waiting)]) == ["a"]


async def test_a_wait_that_is_cancelled_loses_nothing(client: App) -> None:
    replies = client.replies(WEB)
    for task_id in ("a", "b", "c"):
        waiting = asyncio.ensure_future(anext(replies))
        for _ in range(3):
            await client.replies("another").next_ready()  # it gets that far
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        await submitted(client, task_id)
        assert names([await within(anext(replies))]) == [task_id]
    await replies.aclose()
    assert names(await taken(client.replies(WEB))) == ["c"]


@pytest.mark.parametrize("turns", range(12))
async def test_a_wait_that_is_cancelled_while_messages_are_read_loses_none_of_them(client: App, turns: int) -> None:
    await submitted(client, "a", "b", "c")
    replies = client.replies(WEB)
    first = await anext(replies)
    replies._ready.clear()  # as if they had not been read yet
    replies._given = {replies._taken.no} if replies._taken is not None else set()
    waiting = asyncio.ensure_future(anext(replies))
    for _ in range(turns):
        await asyncio.sleep(0)
    waiting.cancel()
    heard = [await waiting] if waiting.done() and not waiting.cancelled() else []
    with pytest.raises((asyncio.CancelledError, StopAsyncIteration)):
        await waiting if not heard else await _stop()
    assert names([first, *heard, *await taken(replies)]) == ["a", "b", "c"]


async def _stop() -> None:
    raise StopAsyncIteration


# --- a store that fails
class Unsteady:
    """The store, but its acknowledgements are lost as often as it is told."""

    def __init__(self, store: StateStore, lost: int, *, after: bool) -> None:
        self._store = store
        self._lost = lost
        self._after = after  # it is written, and only the answer is lost

    async def acknowledge(self, acknowledged: Sequence[tuple[str, int]]) -> None:
        if self._lost:
            self._lost -= 1
            if self._after:
                await self._store.acknowledge(acknowledged)
            raise StoreError("the disk is not there")
        await self._store.acknowledge(acknowledged)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


@pytest.mark.parametrize("after", [True, False])
@pytest.mark.parametrize("lost", [1, 2, 5])
async def test_an_acknowledgement_that_is_lost_is_sent_again_and_the_reader_hears_nothing_twice(
    client: App, monkeypatch: pytest.MonkeyPatch, lost: int, after: bool
) -> None:
    await submitted(client, "a", "b", "c")
    monkeypatch.setattr(client.session, "_store", Unsteady(client.session.store, lost, after=after))
    replies = client.replies(WEB)
    assert names(await taken(replies)) == ["a", "b", "c"]
    for _ in range(lost):
        assert await replies.next_ready() is None
    await replies.aclose()
    monkeypatch.undo()
    assert await taken(client.replies(WEB)) == []


async def test_a_lost_acknowledgement_brings_the_message_again_to_the_next_reader(
    client: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    await submitted(client, "a", "b")
    monkeypatch.setattr(client.session, "_store", Unsteady(client.session.store, 9, after=False))
    replies = client.replies(WEB)
    assert names([await anext(replies), await anext(replies)]) == ["a", "b"]
    await replies.aclose()
    monkeypatch.undo()
    assert names(await taken(client.replies(WEB))) == ["a", "b"]


async def test_a_reader_whose_app_was_closed_is_told_so(machine: Machine) -> None:
    """It may be at work on a message just then; asking for the next one must not wait for ever."""
    app = shop(machine)
    async with app:
        await submitted(app, "a", "b")
        replies = app.replies(WEB)
        await anext(replies)
        replies._ready.clear()  # nothing was read ahead
    with pytest.raises(ArrieroError):
        await within(anext(replies))


async def test_a_reader_that_waits_while_its_app_is_closed_is_told_so(machine: Machine) -> None:
    app = shop(machine)
    async with app:
        waiting = asyncio.ensure_future(anext(app.replies(WEB)))
        await app.replies("another").next_ready()
    with pytest.raises(ArrieroError):
        await within(waiting)


# --- nobody reads
async def test_dropped_messages_leave_one_mark_that_comes_first_and_is_acknowledged_like_the_others(
    client: App,
) -> None:
    await submitted(client, "a", "b")
    store = client.session.store
    horizon = store.now()
    await submitted(client, "c")
    assert await store.drop_statuses(horizon, 100) == 2
    replies = client.replies(WEB)
    mark = await anext(replies)
    assert (mark.kind, mark.dropped, mark.task_id, mark.number) == ("dropped", 2, "", 0)
    assert mark.data["count"] == 2
    assert names([await anext(replies)]) == ["c"]
    await replies.aclose()
    assert names(await taken(client.replies(WEB))) == ["c"]


async def test_a_reader_that_never_acknowledges_finds_out_what_it_missed(client: App) -> None:
    await submitted(client, "a")
    store = client.session.store
    slow = client.replies(WEB)
    assert names([await anext(slow)]) == ["a"]
    await submitted(client, "b", "c")
    await store.drop_statuses(store.now(), 100)
    mark = await anext(slow)
    assert (mark.kind, mark.dropped) == ("dropped", 3)
    assert await slow.next_ready() is None


async def test_messages_that_nobody_took_are_dropped_by_themselves(world: testing.World) -> None:
    await (await world.app.submit(nothing(), task_id="old", reply_to=WEB)).result()
    await world.clock.advance(KEEP_DAYS * DAY - 120)
    await (await world.app.submit(nothing(), task_id="new", reply_to=WEB)).result()
    assert await told_kinds(world.app) == ["received", "started", "completed"] * 2
    await world.clock.advance(300)
    assert await told_kinds(world.app) == ["dropped", "received", "started", "completed"]
    await world.clock.advance(KEEP_DAYS * DAY)
    (mark,) = await taken(world.app.replies(WEB))
    assert (mark.kind, mark.dropped) == ("dropped", 6)


async def told_kinds(app: App) -> list[str]:
    """Without acknowledging anything."""
    return [status.kind for status in await app.session.store.load_statuses(WEB, 1_000)]


async def test_many_old_messages_are_dropped_in_several_passes_and_counted_together(world: testing.World) -> None:
    for number in range(350):  # three messages each: more than one pass drops
        await world.app.submit(nothing(), task_id=f"{number}", reply_to=WEB)
    await world.clock.advance(60)
    await world.clock.advance(KEEP_DAYS * DAY + 60)
    await world.clock.advance(1)  # the next passes
    (mark,) = await taken(world.app.replies(WEB))
    assert (mark.kind, mark.dropped) == ("dropped", 1_050)


# --- CloudEvents
async def test_each_status_is_a_cloud_event(world: testing.World) -> None:
    broken.add("bad")
    await world.app.submit(order(["good"]), task_id="well", reply_to=WEB)
    await ended(world.app, "well")
    await world.app.submit(order(["good", "bad"]), task_id="ill", reply_to=WEB)
    await ended(world.app, "ill")
    statuses = await taken(world.app.replies(WEB))
    events = [json.loads(json.dumps(status.cloud_event(), allow_nan=False)) for status in statuses]
    for status, event in zip(statuses, events, strict=True):
        assert event["specversion"] == "1.0"
        assert event["type"] == f"arriero.task.{status.kind}"
        assert event["source"] == status.source == f"/arriero/{world.app.session.store.store_id}"
        assert event["subject"] == status.task_id
        assert event["datacontenttype"] == "application/json"
        assert datetime.fromisoformat(event["time"]) == status.at
        assert event["time"].endswith(("+00:00", "Z"))
        assert "T" in event["time"]
        about = {name: event["data"][name] for name in ("number", "kind", "workflow", "incarnation", "queue")}
        assert about == {
            "number": status.number,
            "kind": status.kind,
            "workflow": "order",
            "incarnation": 1,
            "queue": WEB,
        }
        assert set(event) <= {"specversion", "id", "source", "type", "subject", "time", "datacontenttype", "data"}
    assert len({(event["source"], event["id"]) for event in events}) == len(events) == 7
    assert all(isinstance(event["id"], str) and event["id"] for event in events)
    assert events[2]["data"]["output"] == ["charged the good card"]
    assert events[-1]["data"]["code"] == "refused"


async def test_a_message_that_comes_again_has_the_same_id(client: App) -> None:
    await submitted(client, "a")
    assert (await anext(client.replies(WEB))).id == (await anext(client.replies(WEB))).id


async def test_ids_of_two_stores_differ_by_their_sources(machine: Machine, tmp_path: Any) -> None:
    sources = []
    for name in ("one", "two"):
        async with Machine(tmp_path / f"{name}.db").app([], [nothing]) as app:
            await submitted(app, "a")
            sources.append((await anext(app.replies(WEB))).source)
    assert len(set(sources)) == 2


async def test_a_gap_mark_is_a_cloud_event_without_a_subject(client: App) -> None:
    store = client.session.store
    seen = set()
    for task_id in ("a", "b"):
        await submitted(client, task_id)
        await store.drop_statuses(store.now(), 100)
        mark = (await anext(client.replies(WEB))).cloud_event()
        assert mark["type"] == "arriero.replies.dropped"
        assert "subject" not in mark
        assert mark["data"]["count"] == len(seen) + 1
        assert datetime.fromisoformat(mark["time"]).tzinfo == UTC
        seen.add((mark["source"], mark["id"]))
    assert len(seen) == 2  # another mark, another event


async def test_an_output_with_the_names_of_our_own_fields_is_kept_apart_from_them(machine: Machine) -> None:
    @workflow
    async def odd() -> dict[str, Any]:
        return {"reason": 1, "count": "many", "output": None, "number": -1, "kind": "x", "queue": ""}

    app = machine.app([], [odd])
    async with app.running():
        await within((await app.submit(odd(), task_id="t", reply_to=WEB)).result())
        *_, completed = await taken(app.replies(WEB))
    assert completed.output == {"reason": 1, "count": "many", "output": None, "number": -1, "kind": "x", "queue": ""}
    assert (completed.reason, completed.dropped, completed.number, completed.kind) == ("", 0, 3, "completed")
    data = completed.cloud_event()["data"]
    assert (data["number"], data["kind"], data["queue"]) == (3, "completed", WEB)
