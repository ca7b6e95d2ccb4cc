"""One pass of supervision as a process of its own: it does what a Supervisor does over time, or nothing if another one leads."""

import asyncio
from typing import Any

import msgspec
import pytest
from store_world import COMPLETE_WITHIN, TestClock, World, step

from arriero.model import StepState, TaskState
from arriero.model.policies import Supervision, TaskPolicy
from arriero.runtime.alerts import Alerting
from arriero.runtime.ports import LoopClock, SystemPorts
from arriero.runtime.settings import Settings
from arriero.runtime.single_pass import PassReport, SinglePass
from arriero.runtime.upkeep import Upkeep
from arriero.store.contract import SUPERVISOR_LEASE

LEASE = 3.0
HELD = msgspec.json.encode(TaskPolicy(None, Supervision(then="hold"))).decode()


class MovingClock(LoopClock):
    """Whoever sleeps moves the store's clock on, and waits no longer than others need for their turn."""

    def __init__(self, clock: TestClock) -> None:
        self._clock = clock

    async def sleep(self, seconds: float) -> None:
        self._clock.move(seconds)
        await asyncio.sleep(0.002)


class Sink:
    name = "list"
    timeout_seconds = 5.0

    def __init__(self, error: str = "") -> None:
        self.error = error
        self.alerts: list[Any] = []

    async def tell(self, alert: Any) -> None:
        self.alerts.append(alert)
        if self.error:
            raise RuntimeError(self.error)


async def supervise_once(world: World, clock: TestClock, *sinks: Sink) -> PassReport:
    ports = SystemPorts()
    ports.clock = MovingClock(clock)
    single_pass = SinglePass(
        store=world.store,
        ports=ports,
        settings=Settings(lease_seconds=LEASE),
        upkeep=Upkeep(store=world.store, ports=ports, replies_keep_seconds=1e6),
        alerting=Alerting(sinks, store=world.store, ports=ports),
    )
    async with asyncio.timeout(60):
        return await single_pass.run()


async def leaves_nothing_held(world: World) -> None:
    """The lease is free, and no process is left that was not there before."""
    _, processes = await world.store.known_processes()
    assert {process.instance for process in processes} <= {"p1"}
    next_process = await world.process("next")
    assert (await world.store.acquire_lease(SUPERVISOR_LEASE, next_process, "next", 1.0)).holder == next_process


async def test_with_nothing_due_it_does_nothing_and_leaves_nothing_behind(world: World, clock: TestClock) -> None:
    report = await supervise_once(world, clock)
    assert (report.led_by, report.term) == (None, 1)
    assert report == PassReport(term=1)
    await leaves_nothing_held(world)


async def test_it_recovers_what_expired_in_a_process_that_lives(world: World, clock: TestClock) -> None:
    await world.process()
    _, (running,) = await world.running(await world.held(), "charge")
    clock.move(COMPLETE_WITHIN)
    await world.store.renew(1, 1e6)
    report = await supervise_once(world, clock)
    assert (report.attempts_retried, report.tasks_freed) == (1, 0)
    after = await world.step(running.step_no)
    assert (after.state, after.failure_count, after.in_doubt) == (StepState.PENDING, 1, True)
    assert after.not_before == report.last_retry_at
    assert await supervise_once(world, clock) == PassReport(term=2)  # once is enough
    await leaves_nothing_held(world)


async def test_it_fails_requests_that_nobody_took_and_enforces_limits(world: World, clock: TestClock) -> None:
    await world.process()
    await world.held("limited", complete_within=5.0)
    _, (waiting,) = await world.opened(await world.held("starving"), step(wait_within=4.0))
    clock.move(6.0)
    await world.store.renew(1, 1e6)
    report = await supervise_once(world, clock)
    assert (report.steps_failed, report.tasks_undone + report.tasks_held) == (1, 1)
    assert (await world.step(waiting.step_no)).state is StepState.FAILED


async def test_it_frees_what_a_lost_process_held_also_if_no_process_renewed_for_long(
    world: World, clock: TestClock
) -> None:
    """After such a time each process gets one lease to renew: the pass waits so long, or no pass would ever free anything."""
    await world.process()
    task, (running,) = await world.running(await world.held(), "charge")
    clock.move(1.5 * COMPLETE_WITHIN)
    report = await supervise_once(world, clock)
    assert (report.processes_lost, report.tasks_freed) == (1, 1)
    assert (await world.task(task.task_no)).locked_by is None
    after = await world.step(running.step_no)
    assert (after.state, after.lost_count, after.failure_count) == (StepState.PENDING, 1, 0)


async def test_if_another_process_leads_it_says_so_and_does_nothing(world: World, clock: TestClock) -> None:
    await world.process()
    _, (running,) = await world.running(await world.held(), "charge")
    clock.move(COMPLETE_WITHIN)
    await world.store.renew(1, 1e6)
    await world.store.acquire_lease(SUPERVISOR_LEASE, 1, "p1", 1e6)
    report = await supervise_once(world, clock)
    assert report == PassReport(led_by="p1")
    assert (await world.step(running.step_no)).state is StepState.RUNNING


@pytest.mark.parametrize("error", ["", "the pager does not answer"])
async def test_it_tells_alerts_and_counts_those_that_failed(world: World, clock: TestClock, error: str) -> None:
    await world.process()
    task = await world.held("limited", complete_within=5.0, policy=HELD)
    clock.move(6.0)
    await world.store.renew(1, 1e6)
    sink = Sink(error)
    report = await supervise_once(world, clock, sink)
    assert (await world.task(task.task_no)).state is TaskState.HELD
    assert (report.tasks_held, report.alerts_told, report.alerts_failed) == (1, not error, bool(error))
    assert [alert.task_id for alert in sink.alerts] == ["limited"]
