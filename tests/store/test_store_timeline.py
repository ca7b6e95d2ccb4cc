"""The timeline of a task as it is read from a store: at one time, and again as the task continues."""

import msgspec
import pytest
from store_world import TestClock, World

from arriero.client.timeline import TimelineReader, load_timeline
from arriero.errors import InvalidInput, UnknownTask
from arriero.explain.timeline_shapes import BarKind
from arriero.model.moves import Process


async def test_a_timeline_that_was_read_step_by_step_is_that_which_is_read_at_the_end(
    world: World, clock: TestClock
) -> None:
    held = await world.held()
    reader = TimelineReader(world.store, held.task_id)
    assert [row.kind for row in (await reader.read()).timeline.rows] == ["task"]
    task, (charge,) = await world.running(held, "charge")
    clock.move(2)
    running = await reader.read()
    assert [bar.kind for bar in running.timeline.rows[1].bars][-1] is BarKind.ATTEMPT
    assert "charge" in running.waiting_for
    await world.advance(task, [world.reported(charge)], ending=Process('"done"'))
    last = await reader.read()
    assert (last.timeline.state, last.timeline.is_open, last.waiting_for) == ("processed", False, "")
    assert last == await load_timeline(world.store, held.task_id)
    msgspec.json.encode(last)


async def test_the_history_of_a_task_and_of_all_begins_behind_what_was_asked_for(world: World) -> None:
    task, (charge,) = await world.running(await world.held(), "charge")
    await world.advance(task, [world.reported(charge)], ending=Process('"done"'))
    whole = [row async for row in world.store.history(task.task_no)]
    assert [row async for row in world.store.history(task.task_no, after=whole[1].link)] == whole[2:]
    everything = [row async for row in world.store.history()]
    assert [row async for row in world.store.history(after=everything[1].no)] == everything[2:]


async def test_an_unknown_task_and_what_no_id_can_be_have_no_timeline(world: World) -> None:
    with pytest.raises(UnknownTask):
        await load_timeline(world.store, "nobody")
    with pytest.raises(InvalidInput):
        await load_timeline(world.store, "")
