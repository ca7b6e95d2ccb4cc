"""What a process asks of a file costs the same however much waits there for code that it does not have."""

from collections.abc import Awaitable, Callable

import pytest
from store_world import TestClock, World, step, submission

from arriero.store.engine.transactions import Lane
from arriero.store.sqlite.store import SqliteStore

FOREIGN = 3_000  # tasks or requests
MORE_MAX = 400  # steps of SQLite's machine: an index of many entries is deeper; a look at each of them takes some ten

Asks = Callable[[], Awaitable[object]]


@pytest.fixture
async def world(open_sqlite: Callable[[], Awaitable[SqliteStore]], clock: TestClock) -> World:
    world = World(await open_sqlite(), clock, looks_often=False)
    await world.process()
    return world


async def cost(world: World, ask: Asks) -> int:
    """Steps of SQLite's machine, on all threads of the store; asked once before, so that everything is prepared."""
    assert isinstance(world.store, SqliteStore)
    threads = [thread for thread in (world.store._writer, world.store._reader) if thread is not None]
    steps = 0

    def count() -> None:
        nonlocal steps
        steps += 1

    await ask()
    for thread in threads:
        await thread.run(lambda connection: connection.set_progress_handler(count, 1))
    await ask()
    for thread in threads:
        await thread.run(lambda connection: connection.set_progress_handler(None, 0))
    assert steps > 0
    return steps


def asks_for_tasks(world: World) -> dict[str, Asks]:
    return {
        "due": lambda: world.store.due(("fulfil", "other"), ("payments",)),
        "claim": lambda: world.claim(workflows=("fulfil", "other")),
    }


@pytest.mark.parametrize("asked", ["due", "claim"])
@pytest.mark.parametrize("delay", [0.0, 3600.0], ids=["due now", "due later"])
async def test_tasks_of_workflows_that_are_not_here_cost_a_look_and_a_claim_nothing(
    world: World, asked: str, delay: float
) -> None:
    ask = asks_for_tasks(world)[asked]
    before = await cost(world, ask)
    await world.store.submit([submission(f"t-{n}", workflow="theirs", delay=delay) for n in range(FOREIGN)])
    assert await cost(world, ask) <= before + MORE_MAX


async def test_tasks_of_ours_behind_a_backlog_that_is_not_are_claimed_at_the_same_cost(world: World) -> None:
    async def put_back_and_claim() -> None:
        (loaded,) = await world.claim()
        await world.written(world.free_command(loaded.task, lost_by=None, stuck_since=loaded.task.unseen_since))

    await world.submit("ours")
    before = await cost(world, put_back_and_claim)
    await world.store.submit([submission(f"t-{n}", workflow="theirs") for n in range(FOREIGN)])
    assert await cost(world, put_back_and_claim) <= before + MORE_MAX
    assert (await world.store.due(("fulfil",), ())).tasks


async def test_requests_of_agents_that_are_not_here_cost_a_look_and_a_take_nothing(world: World) -> None:
    asks: list[Asks] = [lambda: world.store.due(("fulfil",), ("payments",)), world.take]
    before = [await cost(world, ask) for ask in asks]
    task = await world.held()
    theirs = [step("send", f"#{number}", agent="mail") for number in range(FOREIGN)]
    await world.opened(task, *theirs)
    assert [await cost(world, ask) for ask in asks] <= [steps + MORE_MAX for steps in before]


@pytest.mark.parametrize("delay", [0.0, 3600.0], ids=["due now", "due later"])
async def test_tasks_of_another_app_that_has_a_workflow_of_the_name_cost_a_look_and_a_claim_nothing(
    world: World, delay: float
) -> None:
    asks: list[Asks] = [
        lambda: world.store.due(("fulfil",), ("payments",), "shop"),
        lambda: world.claim(app="shop"),
    ]
    before = [await cost(world, ask) for ask in asks]
    await world.store.submit([submission(f"t-{n}", app="travel", delay=delay) for n in range(FOREIGN)])
    for ask, steps in zip(asks, before, strict=True):
        assert await cost(world, ask) <= steps + MORE_MAX


async def test_undos_and_requests_of_another_app_cost_a_look_a_claim_and_a_take_nothing(world: World) -> None:
    asks: list[Asks] = [
        lambda: world.store.due(("fulfil",), ("payments",), "shop"),
        lambda: world.claim(app="shop"),
        lambda: world.take(app="shop"),
    ]
    before = [await cost(world, ask) for ask in asks]
    await world.submit(app="travel")
    (loaded,) = await world.claim(app="travel")
    await world.opened(loaded.task, *[step("charge", f"#{number}") for number in range(FOREIGN)])
    await world.store.submit([submission(f"t-{n}", app="travel") for n in range(FOREIGN)])
    await world.store._write(  # type: ignore[attr-defined]  # what a hundred commands each would do
        lambda tables: tables.connection.execute(
            "UPDATE arriero_task SET state = 'compensating' WHERE locked_by IS NULL"
        ),
        Lane.UPKEEP,
    )
    for ask, steps in zip(asks, before, strict=True):
        assert await cost(world, ask) <= steps + MORE_MAX
    await world.store._write(  # type: ignore[attr-defined]  # as its history says
        lambda tables: tables.connection.execute("UPDATE arriero_task SET state = 'pending' WHERE locked_by IS NULL"),
        Lane.UPKEEP,
    )
