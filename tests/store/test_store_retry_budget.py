"""Takes of a process whose retry budget allows only so many later attempts: on every store."""

from store_world import World, retry_at, step
from test_store_breakers import tripped

from arriero.model.agents import BreakerState


async def _requests(world: World) -> None:
    """Six due requests: the first three were tried before."""
    task = await world.held()
    task, _ = await world.opened(task, *(step("charge", key=f"old-{number}") for number in range(3)))
    for dispatch in await world.take():
        await world.report(dispatch.step, retry_at(world.clock()))
    await world.opened(await world.task(task.task_no), *(step("charge", key=f"new-{number}") for number in range(3)))


async def _keys(world: World, **changes: object) -> list[str]:
    return sorted(dispatch.step.key for dispatch in await world.take(**changes))


async def test_a_take_brings_so_many_later_attempts_and_all_first_ones(world: World) -> None:
    await _requests(world)
    keys = await _keys(world, retries=(("payments", 2),))
    assert [key[:3] for key in keys] == ["new", "new", "new", "old", "old"]
    assert await _keys(world, retries=(("payments", 0),)) == []
    assert len(await _keys(world, retries=(("payments", 1),))) == 1


async def test_first_attempts_are_found_behind_later_ones_that_wait(world: World) -> None:
    await _requests(world)
    room = (("payments", 2),)
    assert [key[:3] for key in await _keys(world, room=room, retries=(("payments", 0),))] == ["new", "new"]
    assert [key[:3] for key in await _keys(world, room=room, retries=(("payments", 0),))] == ["new"]


async def test_a_process_without_a_budget_takes_them_all(world: World) -> None:
    await _requests(world)
    assert len(await _keys(world, retries=(("shipping", 0),))) == 6


async def test_a_request_that_waits_for_the_budget_is_left_as_it_is(world: World) -> None:
    await _requests(world)
    loaded = await world.store.load((await world.store.list_tasks())[0].task_no)
    before = {s.key: s for s in loaded.steps if s.key.startswith("old")} if loaded else {}
    await _keys(world, retries=(("payments", 0),))
    for key, waiting in before.items():
        assert await world.step(waiting.step_no) == waiting, key


async def test_a_canary_needs_no_budget(world: World) -> None:
    task = await world.held()
    await world.opened(task, step("charge"))
    (dispatch,) = await world.take()
    await world.report(dispatch.step, retry_at(world.clock()))
    await tripped(world)
    world.clock.move(10)
    (canary,) = await world.take(retries=(("payments", 0),))
    assert canary.step.canary is not None
    (row,) = await world.store.list_breakers()
    assert row.state is BreakerState.HALF_OPEN
