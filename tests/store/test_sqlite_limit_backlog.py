"""A Take of an Agent with limits costs a file the same however many requests of one key, or keys, wait."""

from collections.abc import Awaitable, Callable

import msgspec
import pytest
from store_world import LEASE, TestClock, World, step, submission
from test_sqlite_backlog import cost

from arriero.answers import Claimed, Taken
from arriero.commands import Take
from arriero.limits import LimitPolicy, encode_limit_keys, encode_limits
from arriero.processes import ProcessAbout
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


async def fill(world: World, limits: tuple[LimitPolicy, ...], first: int, last: int, *, one_key: bool) -> None:
    """Requests that are all due at the same instant, each of a task of its own."""
    await world.store.submit([submission(f"order-{number}", app="shop") for number in range(first, last)])
    claimed = await world.store.apply([world.claim_command(1, limit=last - first, app="shop")])
    assert isinstance(claimed[0], Claimed)
    commands = []
    for number, loaded in zip(range(first, last), claimed[0].tasks, strict=True):
        named = {limit.name: f"merchant-{0 if one_key else number}" for limit in limits if limit.is_keyed}
        request = step(limit_keys=encode_limit_keys(named) if named else "{}")
        commands.append(world.advance_command(loaded.task, opened=[request]))
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
