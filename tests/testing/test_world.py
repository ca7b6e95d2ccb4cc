"""arriero.testing: the world on a virtual clock."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from datetime import timedelta

import pytest

import arriero
from arriero import (
    Agent,
    App,
    ArrieroError,
    Attempt,
    Permanent,
    Retry,
    StepFailed,
    Supervision,
    TaskCompensated,
    TaskFailed,
    Transient,
    Undo,
    testing,
    workflow,
)


@dataclass(frozen=True)
class Order:
    id: str
    pence: int
    parcels: tuple[str, ...] = ("p-1", "p-2")


payments, stock, shipping = Agent("payments"), Agent("stock"), Agent("shipping")


@payments.step(complete_within=10, retry=Retry(tries=3))
async def charge(attempt: Attempt, order: Order, *, tip: int = 0) -> str:
    raise AssertionError("a scripted step never runs its own function")


@charge.compensation
async def refund(undo: Undo[str], order: Order, *, tip: int = 0) -> None:
    raise AssertionError("the compensation of a scripted step does nothing")


@stock.step
def reserve(attempt: Attempt, order: Order) -> int:
    return order.pence


@reserve.compensation(supervision=Supervision(attempts=20))
def release(undo: Undo[int], order: Order) -> None:
    assert undo.result in (None, order.pence)


@shipping.step(supervision=Supervision(attempts=10, then="hold"))
async def dispatch(attempt: Attempt, parcel: str) -> str:
    return f"own-{parcel}"


@workflow(complete_within=timedelta(days=40))
async def fulfil(order: Order) -> list[str]:
    await charge(order, tip=2).options(key="deposit")
    await reserve(order)
    try:
        await charge(order).options(key="rest", pivot=True)
    except StepFailed as failed:
        if failed.code != "declined":
            raise
        await arriero.sleep(timedelta(days=30))
        await charge(order).options(key="rest, second card")
    return await asyncio.gather(*(dispatch(p).options(key=p) for p in order.parcels))


shop = App("shop", agents=[payments, stock, shipping], workflows=[fulfil])
ORDER = Order("o-1", 1000)


async def test_a_month_of_sleep_passes_at_once() -> None:
    async with testing.running(shop) as world:
        world.answers(charge, "r1", Permanent("no", code="declined"), "r2")
        task = await world.app.submit(fulfil(ORDER))
        began = world.clock.now()
        assert await task.result() == ["own-p-1", "own-p-2"]
        assert timedelta(days=30) <= world.clock.now() - began < timedelta(days=30, minutes=1)


async def test_what_was_done_is_undone_in_reverse() -> None:
    async with testing.running(shop) as world:
        world.answers(charge, "r1", Permanent("no", code="declined"), Permanent("no", code="declined"))
        task = await world.app.submit(fulfil(ORDER), task_id="o-1")
        with pytest.raises(TaskCompensated, match="no") as undone:
            await task.result()
        assert (undone.value.state, undone.value.step, undone.value.code) == ("compensated", "charge", "declined")
        assert [(u.task_id, u.step, u.key) for u in world.undone()] == [
            ("o-1", "reserve", "#1"),
            ("o-1", "charge", "deposit"),
        ]


async def test_after_a_pivot_the_task_is_held() -> None:
    async with testing.running(shop) as world:
        world.answers(charge, "r1", "r2")
        world.answers(dispatch, Permanent("no carrier", code="no_carrier"), "t-2")
        task = await world.app.submit(fulfil(ORDER))
        with pytest.raises(TaskFailed, match="no carrier") as failed:
            await task.result()
        assert failed.value.state == "held"
        assert "charge[rest] is a pivot" in failed.value.reason
        assert not world.undone()


async def test_a_transient_answer_is_tried_again_under_the_same_arguments() -> None:
    async with testing.running(shop) as world:
        world.answers(charge, Transient("busy"), Transient("busy", retry_after=4), "r1", "r2")
        world.replace(dispatch, lambda parcel: parcel.upper())
        task = await world.app.submit(fulfil(ORDER))
        began = world.clock.now()
        assert await task.result() == ["P-1", "P-2"]
        assert world.clock.now() - began >= timedelta(seconds=4)
        assert [call.get("tip") for call in world.calls(charge)] == [2, 2, 2, None]
        assert world.calls(charge)[0]["order"] == ORDER


async def test_more_calls_than_answers_fail_with_the_remedy() -> None:
    async with testing.running(shop) as world:
        world.answers(charge, "r1")
        task = await world.app.submit(fulfil(ORDER))
        with pytest.raises(TaskCompensated, match=r"world\.answers"):
            await task.result()


async def test_a_timeout_of_result_passes_on_the_worlds_clock() -> None:
    async with testing.running(shop) as world:
        world.answers(charge, "r1", Permanent("no", code="declined"), "r2")
        task = await world.app.submit(fulfil(ORDER))
        with pytest.raises(TimeoutError):
            await task.result(timeout=timedelta(days=3))
        assert (await task.view()).state == "processing"
        await world.clock.advance(timedelta(days=28))
        assert (await task.view()).state == "processed"


async def test_a_delayed_task_starts_at_its_time() -> None:
    async with testing.running(shop) as world:
        world.answers(charge, "r1", "r2")
        task = await world.app.submit(fulfil(ORDER), delay=3600)
        await world.clock.advance(3599)
        assert (await task.view()).state == "pending"
        await world.clock.advance(2)
        assert (await task.view()).state == "processed"


async def test_the_workflows_own_limit_undoes_it() -> None:
    @workflow(complete_within=60)
    async def slow(order: Order) -> None:
        await reserve(order)
        await arriero.sleep(3600)

    app = App("slow", agents=[stock], workflows=[slow])
    async with testing.running(app) as world:
        task = await world.app.submit(slow(ORDER))
        with pytest.raises(TaskCompensated, match="complete_within"):
            await task.result()
        assert [u.step for u in world.undone()] == ["reserve"]


async def test_an_attempt_without_an_answer_expires_and_is_tried_again() -> None:
    agent = Agent("slow")
    calls = []

    @agent.step(complete_within=5, supervision=Supervision(attempts=2))
    async def ask(attempt: Attempt) -> int:
        calls.append((attempt.number, attempt.idempotency_key))
        if len(calls) == 1:
            await asyncio.Event().wait()
        return len(calls)

    app = App("slow", agents=[agent])
    async with testing.running(app) as world:
        task = await world.app.submit(ask())
        began = world.clock.now()
        assert await task.result() == 2
        assert world.clock.now() - began >= timedelta(seconds=5)
        assert [number for number, _ in calls] == [1, 2]
        assert len({key for _, key in calls}) == 1
        assert (await task.view()).failure_count == 1


async def test_rounds_wait_for_the_cool_off_between_them() -> None:
    agent = Agent("down")

    @agent.step(retry=Retry(tries=1), supervision=Supervision(attempts=2, rounds=2, cool_off=900))
    async def ask(attempt: Attempt) -> None:
        raise ConnectionError("down")

    app = App("down", agents=[agent])
    async with testing.running(app) as world:
        task = await world.app.submit(ask())
        began = world.clock.now()
        with pytest.raises(TaskFailed, match="has no compensation") as failed:
            await task.result()
        assert failed.value.state == "held"  # it may have happened, and nothing can undo it
        assert timedelta(seconds=900) <= world.clock.now() - began < timedelta(seconds=960)
        assert len(world.calls(ask)) == 4


async def test_a_task_that_nothing_can_move_is_told() -> None:
    event = asyncio.Event()
    agent = Agent("elsewhere")

    @agent.step
    async def ask(attempt: Attempt) -> None:
        event.set()

    @workflow
    async def lost() -> None:
        await ask()

    app = App("lost", agents=[agent], workflows=[lost])
    async with testing.running(app) as world:
        world.app.session.node.session.agents.stop_taking()  # as if no process hosted the Agent
        task = await world.app.submit(lost())
        with pytest.raises(ArrieroError, match=r"is blocked.*step ask of Agent elsewhere"):
            await task.result()
    assert not event.is_set()


async def test_resources_are_opened_for_own_functions_only() -> None:
    agent = Agent("bank")
    opened = []

    @agent.resource
    async def client() -> AsyncIterator[str]:
        opened.append("open")
        yield "client"
        opened.append("closed")

    @agent.step
    async def ask(attempt: Attempt) -> str:
        return client()

    app = App("bank", agents=[agent])
    async with testing.running(app) as world:
        assert await (await world.app.submit(ask())).result() == "client"
        assert opened == ["open"]
    assert opened == ["open", "closed"]
    async with testing.running(app) as world:
        world.answers(ask, "scripted")
        assert await (await world.app.submit(ask())).result() == "scripted"
    assert opened == ["open", "closed"]


async def test_two_worlds_of_one_seed_are_alike() -> None:
    traces = []
    for _ in range(2):
        async with testing.running(shop, seed=7) as world:
            world.answers(charge, Transient("busy"), "r1", "r2")
            await (await world.app.submit(fulfil(ORDER), task_id="o-1")).result()
            traces.append([bytes(row.events) for row in world._store.log])
    assert traces[0] == traces[1]


async def test_hand_made_attempts_and_undos_reach_plain_functions() -> None:
    assert reserve.function(testing.attempt(idempotency_key="k"), ORDER) == 1000
    release(testing.undo(1000), ORDER)
    nothing: int | None = None
    release(testing.undo(nothing, outcome="unknown"), ORDER)
    attempt = testing.attempt(idempotency_key="k", remaining=3)
    assert (attempt.idempotency_key, attempt.remaining, attempt.headers["Idempotency-Key"]) == ("k", 3, "k")


async def test_a_call_value_awaited_twice_is_no_second_step_but_a_bug_that_holds_the_task() -> None:
    @workflow
    async def twice(order: Order) -> int:
        call = reserve(order)
        return await call + await call

    async with testing.running(App("twice", agents=[stock], workflows=[twice])) as world:
        task = await world.app.submit(twice(ORDER))
        with pytest.raises(TaskFailed, match="awaited twice") as failed:
            await task.result()
        assert failed.value.state == "held"
        assert len(world.calls(reserve)) == 1


async def test_a_resource_can_be_given_to_a_plain_function_in_a_test() -> None:
    agent = Agent("bank")

    @agent.resource
    def client() -> Iterator[str]:
        yield "real"

    @agent.step
    def ask(attempt: Attempt) -> str:
        return client()

    with pytest.raises(ArrieroError, match=r"testing\.resource\(client"):
        ask.function(testing.attempt())
    with testing.resource(client, "fake"):
        assert ask.function(testing.attempt()) == "fake"


# --- time that an attempt asks for, and what it keeps
long = Agent("long")


@long.step(complete_within=10, retry=Retry(tries=1))
async def export(attempt: Attempt) -> list[int]:
    done = attempt.checkpointed or []
    for page in range(len(done), 4):
        await asyncio.Event().wait() if page == 2 and attempt.number == 1 else None
        await attempt.extend(15)
        await attempt.checkpoint([*done, page])
        done = attempt.checkpointed
    return [attempt.number, *done]


@long.step(complete_within=10)
def count(attempt: Attempt) -> int:
    attempt.checkpoint_sync(1)
    return round(attempt.extend_sync(60)) + attempt.checkpointed


@workflow
async def export_all() -> tuple[list[int], int]:
    return await export(), await count()


async def test_attempts_extend_their_time_and_go_on_from_what_was_kept_also_in_a_world() -> None:
    async with testing.running(App("long", agents=[long], workflows=[export_all])) as world:
        before = world.clock.now()
        task = await world.app.submit(export_all())
        assert await task.result() == ([2, 0, 1, 2, 3], 61)
        assert 15 <= (world.clock.now() - before).total_seconds() < 25
