"""Counts of calls and the load of Agents, in every store."""

from agent_counts import sum_up
from store_world import LEASE, World, step

from arriero.core.agent_metrics import AgentCounts, encode_counts, find_minute
from arriero.inspection.facts import AgentLoad, CountsRow


def counted(world: World, calls: int, process_no: int, *, minutes_ago: int = 0, app: str = "shop") -> CountsRow:
    counts = AgentCounts()
    for _ in range(calls):
        counts.add_call("succeeded", 0.02)
    minute = find_minute(world.store.now()) - minutes_ago
    text = encode_counts({"bank": counts})
    return CountsRow(app=app, process_no=process_no, minute=minute, calls=calls, counts=text)


async def total(world: World, app: str = "shop") -> int:
    found = await world.store.measure_agents()
    return sum_up(found.counts, found.now)[app, "bank"].total.calls


async def test_a_write_that_is_repeated_counts_once_and_one_that_comes_late_changes_nothing(world: World) -> None:
    number = await world.store.register("counting", LEASE)
    before, after = counted(world, 3, number), counted(world, 5, number)
    for rows in ([before], [before], [after], [before]):
        await world.store.put_agent_counts(rows)
    assert (await world.store.measure_agents()).counts == (after,)


async def test_processes_and_minutes_have_rows_of_their_own(world: World) -> None:
    first, second = await world.store.register("first", LEASE), await world.store.register("second", LEASE)
    rows = [counted(world, 1, first, minutes_ago=1), counted(world, 2, first), counted(world, 4, second)]
    await world.store.put_agent_counts(rows[:2])
    await world.store.put_agent_counts(rows[2:])
    assert (await world.store.measure_agents()).counts == tuple(rows)
    assert await total(world) == 7


async def test_nothing_is_kept_of_a_process_that_is_retired_or_unknown(world: World) -> None:
    number = await world.store.register("lost", LEASE)
    await world.store.put_agent_counts([counted(world, 1, number)])
    await world.store.retire(number, by="another", known_dead=True)
    await world.store.put_agent_counts([counted(world, 2, number), counted(world, 2, number + 1)])
    assert await total(world) == 1


async def test_after_a_restore_processes_of_the_former_epoch_write_nothing(world: World) -> None:
    number = await world.store.register("before", LEASE)
    await world.store.new_epoch("ana")
    await world.store.put_agent_counts([counted(world, 1, number)])
    assert (await world.store.measure_agents()).counts == ()


async def test_old_minutes_are_folded_once_and_the_sum_never_changes(world: World) -> None:
    number, other = await world.store.register("first", LEASE), await world.store.register("second", LEASE)
    assert await world.store.fold_agent_counts() == 0
    await world.store.put_agent_counts([counted(world, 1, number), counted(world, 2, other)])
    await world.store.put_agent_counts([counted(world, 4, number, app="depot")])
    world.clock.move(61 * 60)
    await world.store.put_agent_counts([counted(world, 8, number)])
    assert await world.store.fold_agent_counts() == 0
    world.clock.move(60)
    assert await world.store.fold_agent_counts() == 3
    assert await world.store.fold_agent_counts() == 0
    assert (await total(world), await total(world, "depot")) == (11, 4)
    world.clock.move(62 * 60)
    assert await world.store.fold_agent_counts() == 1
    assert (await total(world), await total(world, "depot")) == (11, 4)
    assert [row.process_no for row in (await world.store.measure_agents()).counts] == [0, 0]


async def test_a_minute_that_may_have_been_folded_is_not_written_again(world: World) -> None:
    number = await world.store.register("frozen", LEASE)
    late = counted(world, 3, number)
    await world.store.put_agent_counts([counted(world, 2, number)])
    world.clock.move(52 * 60)
    await world.store.put_agent_counts([late])
    assert await total(world) == 2
    world.clock.move(10 * 60)
    assert await world.store.fold_agent_counts() == 1
    await world.store.put_agent_counts([late])
    assert await total(world) == 2


async def test_counts_that_cannot_be_read_do_not_stop_the_folding(world: World) -> None:
    number = await world.store.register("damaged", LEASE)
    minute = find_minute(world.store.now())
    bad = CountsRow(app="shop", process_no=number, minute=minute - 1, calls=9, counts="no JSON")
    await world.store.put_agent_counts([bad, counted(world, 2, number)])
    assert await total(world) == 2
    world.clock.move(63 * 60)
    assert await world.store.fold_agent_counts() == 2
    assert await total(world) == 2


async def test_the_load_is_told_by_app_and_agent(world: World) -> None:
    assert (await world.store.measure_agents()).loads == ()
    for number in (1, 2, 3):
        await world.submit(f"order-{number}", app="shop")
    for loaded in await world.claim(app="shop", limit=3):
        await world.opened(loaded.task, step())
        world.clock.move(1)
    (load,) = (await world.store.measure_agents()).loads
    assert load == AgentLoad(app="shop", agent="payments", due=3, oldest_at=load.oldest_at, running=0)
    assert load.oldest_at == world.clock.at - 3_000_000
    await world.take(app="shop", room=(("payments", 1),))
    (load,) = (await world.store.measure_agents()).loads
    assert (load.due, load.running) == (2, 1)
