"""Limits judged from a history: what the rules let through is clean, and what a broken rule lets through is convicted."""

import msgspec
import pytest
from store_world import LEASE, TestClock, World, step

from arriero.audit.check import check
from arriero.core import writer
from arriero.core.limits import LimitBook
from arriero.model.agents import LimitPolicy, encode_limits
from arriero.model.processes import ProcessAbout
from arriero.store.memory import MemoryStore

TWO = LimitPolicy(name="concurrent", kind="concurrent", most=2)
TWO_A_SECOND = LimitPolicy(name="rate", kind="rate", most=2, per=1.0)


async def waiting(limit: LimitPolicy) -> World:
    """Three requests of an Agent with this limit."""
    clock = TestClock()
    world = World(MemoryStore(clock), clock, looks_often=False)
    about = ProcessAbout(app="shop", steps=(("payments", "charge"),), limits={"payments": encode_limits((limit,))})
    await world.store.register("p1", LEASE, msgspec.json.encode(about).decode())
    await world.submit(app="shop")
    (loaded,) = await world.claim(1, app="shop")
    await world.opened(loaded.task, *(step(key=str(number), limit_keys="{}") for number in range(3)))
    return world


async def convicted(world: World) -> set[str]:
    return {violation.invariant for violation in check([row async for row in world.store.history()])}


@pytest.mark.parametrize(("limit", "invariant"), [(TWO, "I72"), (TWO_A_SECOND, "I73")])
async def test_more_than_a_limit_allows_is_convicted(
    limit: LimitPolicy, invariant: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = await waiting(limit)
    assert len(await world.take(app="shop")) == 2
    assert await convicted(world) == set()
    monkeypatch.setattr(LimitBook, "count_common_room", lambda _: 9)
    assert len(await world.take(app="shop")) == 1
    assert await convicted(world) == {invariant}


async def test_what_ended_no_longer_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    world = await waiting(TWO)
    first, _ = await world.take(app="shop")
    await world.report(first.step)
    await world.take(app="shop")
    assert await convicted(world) == set()


async def test_calls_of_a_rate_that_lie_further_apart_than_its_window_are_clean() -> None:
    world = await waiting(TWO_A_SECOND)
    await world.take(app="shop")
    world.clock.move(1.1)
    assert len(await world.take(app="shop")) == 1
    assert await convicted(world) == set()


async def test_an_attempt_that_no_take_began_is_convicted(monkeypatch: pytest.MonkeyPatch) -> None:
    world = await waiting(TWO)
    monkeypatch.setattr(writer, "is_limited", lambda *_: False)
    world.clock.move(61)
    task = (await world.rows())[0].task
    answer = await world.advance(task, opened=[step("ship", take=True, limit_keys="{}")])
    assert len(answer.dispatches) == 1
    assert await convicted(world) == {"I72"}
