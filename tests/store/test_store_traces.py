"""Where code failed is kept with task, step, history and alert, on every store alike, and goes with the task."""

import msgspec
from store_world import NOON, World

from arriero.core.alerts import build_alert
from arriero.model import Instant
from arriero.model.failures import CapturedError, Frame, StepFailure, TaskFailure
from arriero.model.moves import Compensate, GaveUp, Hold, RetryAsked
from arriero.store.contract import PurgeNamed

LINE = Frame("shop/orders.py", 42, "fulfil", "total = prices['nix']")
TRACE = (CapturedError("OrderError", (LINE,)), CapturedError("KeyError", (LINE, LINE), 3, "cause"))
STEP_FAILED = StepFailure("unknown", "KeyError: 'nix'", trace=TRACE)
HELD = TaskFailure("bug", "KeyError: 'nix'", code="bug", trace=TRACE)


async def test_a_failed_attempt_keeps_its_trace_in_its_row_and_in_the_history(world: World) -> None:
    task, (step,) = await world.running(await world.held(), "charge")
    await world.report(step, RetryAsked(STEP_FAILED, True, world.store.now()))
    kept = await world.step(step.step_no)
    assert kept.failure is not None
    assert msgspec.json.decode(kept.failure, type=StepFailure) == STEP_FAILED
    (event,) = [event for event in await world.events(task.task_no) if event["type"] == "recover.applied"]
    assert msgspec.convert(event["failure"], StepFailure) == STEP_FAILED


async def test_a_step_that_failed_for_good_keeps_its_trace(world: World) -> None:
    task, (step,) = await world.running(await world.held(), "charge")
    declined = msgspec.structs.replace(STEP_FAILED, cause="permanent")
    await world.report(step, GaveUp(declined, False))
    (event,) = [event for event in await world.events(task.task_no) if event["type"] == "step.failed"]
    assert msgspec.convert(event["failure"], StepFailure) == declined


async def test_an_alert_tells_the_line_while_it_is_open_and_when_it_is_closed(world: World) -> None:
    held = (await world.advance(await world.held(), ending=Hold(HELD))).task
    (listed,) = await world.store.alerts()
    (taken,) = await world.store.take_alerts(10, 60.0)
    for row in (listed, taken):
        alert = build_alert(row, "store")
        assert alert.trace == TRACE
        assert alert.at == "shop/orders.py:42, in fulfil: `total = prices['nix']`"
    assert held.failure is not None
    assert msgspec.json.decode(held.failure, type=TaskFailure).trace == TRACE


async def test_an_alert_without_a_line_has_none(world: World) -> None:
    await world.advance(await world.held(), ending=Hold(TaskFailure("bug", "stuck")))
    (row,) = await world.store.take_alerts(10, 60.0)
    assert row.trace is None
    assert (build_alert(row, "store").at, build_alert(row, "store").trace) == ("", ())


async def test_a_purge_removes_it_with_the_task(world: World) -> None:
    task = await world.held()
    await world.advance(task, ending=Compensate(HELD))
    assert "orders.py" in str([bytes(row.events) async for row in world.store.history()])
    which = PurgeNamed(what="task", name=task.task_id, ended_before=Instant(NOON + 10**15))
    assert (await world.store.purge_named(which, actor="janitor", limit=10)).is_done
    assert "orders.py" not in str([bytes(row.events) async for row in world.store.history()])
    assert await world.store.find(task.task_id) is None
