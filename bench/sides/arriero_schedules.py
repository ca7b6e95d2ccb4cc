"""10,000 schedules that are due in the same minute, and what they cost while none is due."""

import asyncio
import time

import msgspec

from arriero.model import Instant, later
from arriero.model.policies import Supervision, TaskPolicy
from arriero.model.processes import ProcessAbout
from arriero.model.schedules import DeclareSchedule, ScheduleDeclaration, Timing
from arriero.runtime.ports import SystemPorts
from arriero.runtime.schedule_runner import ScheduleRunner
from arriero.store import open_store
from arriero.store.contract import SUPERVISOR_LEASE
from arriero.store.state_store import StateStore

AT_ONCE = 500  # declared in one transaction
FEW = 10
PASSES = 300  # of an idle leader, for each figure
LEASE_SECONDS = 3_600.0
POLICY = msgspec.json.encode(TaskPolicy(None, Supervision())).decode()
DAILY = Timing(cron="0 3 1 1 *", timezone="Europe/Madrid")  # not while this runs, unless somebody celebrates


async def schedules(count: int, url: str) -> dict[str, float]:
    """Measure a leader alone: what it takes to submit all, and what an idle pass takes beside few and beside all."""
    store = open_store(url)
    await store.open()
    leader = await store.register("leader", LEASE_SECONDS)
    about = ProcessAbout(app="bench", roles=("scheduler",), workflows=("report",))
    await store.register("worker", LEASE_SECONDS, msgspec.json.encode(about).decode())
    term = (await store.acquire_lease(SUPERVISOR_LEASE, leader, "leader", LEASE_SECONDS)).term
    runner = ScheduleRunner(store=store, ports=SystemPorts(), actor="leader", term=lambda: term)
    await declare(store, FEW, DAILY)
    few = await idle_seconds(runner)
    await declare(store, count, DAILY)
    many = await idle_seconds(runner)
    due_at = later(Instant(store.now()), 20 + count / 1_000)  # all are declared by then
    await declare(store, count, Timing(at=due_at))
    await asyncio.sleep(max(0.0, (due_at - store.now()) / 1_000_000))
    started_at = time.perf_counter()
    await runner.finish()
    submitted_in = time.perf_counter() - started_at
    assert runner.submitted == count, f"{runner.submitted} runs were submitted, {count} were due"
    await store.close()
    return {"submitted in": submitted_in, "idle": many * 1_000, "idle beside few": few * 1_000, "ratio": many / few}


async def declare(store: StateStore, count: int, timing: Timing) -> None:
    """Declare schedules, each under a name of its own for this timing."""
    kind = "once" if timing.at is not None else "daily"
    declaration = ScheduleDeclaration(workflow="report", arguments="{}", policy=POLICY, timing=timing)
    for first in range(0, count, AT_ONCE):
        names = [f"{kind}-{number:06}" for number in range(first, min(first + AT_ONCE, count))]
        await store.change_schedules(
            [DeclareSchedule(actor="bench", app="bench", name=name, declaration=declaration) for name in names]
        )


async def idle_seconds(runner: ScheduleRunner) -> float:
    """The median of passes in which nothing is due."""
    seconds = []
    for _ in range(PASSES):
        started_at = time.perf_counter()
        await runner.tick()
        seconds.append(time.perf_counter() - started_at)
    return sorted(seconds)[PASSES // 2]
