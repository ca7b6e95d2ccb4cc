"""A Take of an Agent with limits costs a file the same however many requests of one key, or keys, wait."""

from collections.abc import Awaitable, Callable

import msgspec
import pytest
from store_world import LEASE, TestClock, World, step, submission
from test_sqlite_backlog import cost

from arriero.model.agents import LimitPolicy, encode_limit_keys, encode_limits
from arriero.model.answers import Claimed, Taken
from arriero.model.commands import Take
from arriero.model.processes import ProcessAbout
from arriero.store.engine.limits import KEYS_AT_ONCE
from arriero.store.engine.take_requests import FRUITLESS_PAGES_MAX
from arriero.store.sqlite.store import SqliteStore

FEW = 300  # more than one page of keys
MORE = 2_000
DEEPER_MAX = 2_000  # steps of SQLite's machine: a page of keys is looked up one by one, each in an index that is deeper
COMMON = LimitPolicy(name="concurrent", kind="concurrent", most=1_000)
OF_MERCHANT = LimitPolicy(name="of merchant", kind="concurrent", most=1_000, is_keyed=True)
A_SECOND = LimitPolicy(name="rate", kind="rate", most=1_000, per=1.0, is_keyed=True)


@pytest.fixture
async def world(open_sqlite: Callable[[], Awaitable[SqliteStore]], clock: TestClock) -> World:
    return World(await open_sqlite(), clock, looks_often=False)


async def fill(
    world: World, limits: tuple[LimitPolicy, ...], first: int, last: int, *, one_key: bool, each: int = 1
) -> None:
    """Requests that are all due at the same instant, so many of each task."""
    await world.store.submit([submission(f"order-{number}", app="shop") for number in range(first, last)])
    claimed = await world.store.apply([world.claim_command(1, limit=last - first, app="shop")])
    assert isinstance(claimed[0], Claimed)
    commands = []
    for number, loaded in zip(range(first, last), claimed[0].tasks, strict=True):
        named = {limit.name: f"merchant-{0 if one_key else number}" for limit in limits if limit.is_keyed}
        if "of region" in named:
            named["of region"] = "here"
        keys = encode_limit_keys(named) if named else "{}"
        requests = [step(key=f"{one}", limit_keys=keys) for one in range(each)]
        commands.append(world.advance_command(loaded.task, opened=requests))
    await world.store.apply(commands)


@pytest.mark.parametrize("one_key", [True, False], ids=["one key", "many keys"])
@pytest.mark.parametrize("limits", [(COMMON,), (COMMON, OF_MERCHANT), (COMMON, A_SECOND)], ids=["all", "keyed", "rate"])
async def test_a_take_costs_the_same_however_much_waits_once_all_requests_have_keys(
    world: World, limits: tuple[LimitPolicy, ...], one_key: bool
) -> None:
    texts = {"payments": encode_limits(limits)}
    about = ProcessAbout(app="shop", steps=(("payments", "charge"),), limits=texts)
    await world.store.register("p1", LEASE, msgspec.json.encode(about).decode())
    assert isinstance(world.store, SqliteStore)
    # As a Take finds it, once a minute, when all requests from before the limits have ended.
    seen = "UPDATE arriero_agent_limits SET has_keyless = 0, look_at = look_at + 3600000000"
    await world.store._write(lambda tables: tables.connection.execute(seen))

    async def take() -> None:
        room = (("payments", 12),)
        command = Take(actor="p", process_no=1, room=room, names=("charge",), probation=None, app="shop")
        (taken,) = await world.store.apply([command])
        assert isinstance(taken, Taken)
        assert len(taken.dispatches) == 12

    await fill(world, limits, 1, FEW, one_key=one_key)
    before = await cost(world, take)
    await fill(world, limits, FEW, MORE, one_key=one_key)
    assert await cost(world, take) <= before + DEEPER_MAX


AN_HOUR = LimitPolicy(name="rate", kind="rate", most=1, per=3600.0, is_keyed=True)
AN_HOUR_FOR_ALL = LimitPolicy(name="rate", kind="rate", most=1, per=3600.0)
OF_REGION = LimitPolicy(name="of region", kind="concurrent", most=1, is_keyed=True)
ONE_FOR_ALL = LimitPolicy(name="concurrent", kind="concurrent", most=1)
LOOKED_AT = KEYS_AT_ONCE * FRUITLESS_PAGES_MAX
KINDS = {  # from how many keys on a poll costs the same
    "rate with keys": ((AN_HOUR,), 10),
    "rate": ((AN_HOUR_FOR_ALL,), 10),
    "concurrency": ((ONE_FOR_ALL,), 10),
    "rate with keys under one for all": ((ONE_FOR_ALL, AN_HOUR), 10),
    "keys that share a slot": ((OF_REGION, OF_MERCHANT), 3 * LOOKED_AT),
}
MANY = 4_000
ONCE_MORE = 1_000  # steps of SQLite's machine


@pytest.mark.parametrize(("limits", "few"), KINDS.values(), ids=KINDS)
async def test_a_poll_that_can_give_nothing_costs_the_same_however_many_keys_wait(
    world: World, limits: tuple[LimitPolicy, ...], few: int, clock: TestClock
) -> None:
    texts = {"payments": encode_limits(limits)}
    about = ProcessAbout(app="shop", steps=(("payments", "charge"),), limits=texts)
    await world.store.register("p1", LEASE, msgspec.json.encode(about).decode())
    assert isinstance(world.store, SqliteStore)
    seen = "UPDATE arriero_agent_limits SET has_keyless = 0, look_at = look_at + 3600000000"
    await world.store._write(lambda tables: tables.connection.execute(seen))

    async def take(room: int = 12) -> int:
        wanted = (("payments", room),)
        command = Take(actor="p", process_no=1, room=wanted, names=("charge",), probation=None, app="shop")
        (taken,) = await world.store.apply([command])
        assert isinstance(taken, Taken)
        return len(taken.dispatches)

    async def use_up(first: int, last: int) -> None:
        """Fill, until each key has begun what it may and a request of it waits."""
        await fill(world, limits, first, last, one_key=False, each=2)
        for _ in range(2 * MANY // KEYS_AT_ONCE):
            clock.move(0.001)
            await take(10_000)
        if limits == (AN_HOUR,):  # attempts that run are counted by each Take; there are no more of them than places
            ended = "UPDATE arriero_step SET state = 'completed', complete_by = NULL WHERE state = 'running'"
            await world.store._write(lambda tables: tables.connection.execute(ended))
        clock.move(2)

    await use_up(1, few + 1)
    before = await cost(world, take)
    await use_up(few + 1, MANY)
    assert await cost(world, take) <= before + ONCE_MORE
