"""An outage in the simulated world: what reaches a service that is down, and how soon everything flows again.

Four simulated processes share one store in memory. The clock moves when everybody waits, so nothing sleeps, and a seed gives
the same figures again. A commit takes some milliseconds of that time. Agent, step, breaker and processes have their defaults.
"""

import asyncio
import sys
from bisect import bisect_left
from pathlib import Path

import msgspec

from arriero import Agent, App, Attempt, Transient, workflow
from arriero.events import read_events
from arriero.events.store import BreakerClosed, BreakerOpened
from arriero.model import MICROSECONDS, TaskState
from arriero.model.policies import Breaker
from arriero.runtime.settings import Settings

sys.path.insert(0, str(Path(__file__).parents[2]))
from lab.simulation.faults import Faults
from lab.simulation.world import World

PROCESSES = 4
SEED = 1
DOWN_AT = 2.0  # when the processes have started; the requests come in this moment
DOWN_SECONDS = 60.0
ANSWER_SECONDS = 0.05  # as the calls of w10
REFUSE_SECONDS = 0.005  # of a service that is down
SUBMIT_BATCH = 500
LOOK_SECONDS = 1.0
END_SECONDS_MAX = 600.0

payments = Agent("payments")


class Service:
    """A remote service that is down from one instant to another. It writes down when it was called, and how it answered."""

    def __init__(self) -> None:
        self.calls: list[tuple[float, float]] = []  # instant, and that of the first call of the same attempt
        self.succeeded_at: list[float] = []
        self._began: dict[tuple[str, int], float] = {}

    async def charge(self, attempt: Attempt) -> None:
        now = asyncio.get_running_loop().time()
        self.calls.append((now, self._began.setdefault((attempt.task_id, attempt.number), now)))
        if DOWN_AT <= now < DOWN_AT + DOWN_SECONDS:
            await asyncio.sleep(REFUSE_SECONDS)
            raise Transient("connection refused")
        await asyncio.sleep(ANSWER_SECONDS)
        self.succeeded_at.append(now + ANSWER_SECONDS)


service = Service()


@payments.step
async def charge(attempt: Attempt, number: int) -> int:
    await service.charge(attempt)
    return number


@workflow
async def order(number: int) -> int:
    return await charge(number)


class OutageWorld(World):
    """Requests of one Agent that come when its service goes down. Its instants are seconds since the world began."""

    def __init__(self, tasks: int) -> None:
        super().__init__(SEED, tasks=tasks, faults=Faults(), people=False, keys=False)
        self.settings = Settings()
        self.app = App("simulated", agents=(payments,), workflows=(order,))
        self._began = self._store_clock()

    async def _main(self) -> None:
        for number in range(PROCESSES):
            self._start_node(number)
        await asyncio.sleep(DOWN_AT - self.loop.time())
        for first in range(0, self._tasks, SUBMIT_BATCH):
            numbers = range(first, min(first + SUBMIT_BATCH, self._tasks))
            calls = [self.submission(order(number), f"order-{number}", self.random, number) for number in numbers]
            await self.submit([msgspec.structs.replace(call, reply_to=None) for call in calls])
        while any(task.ended_at is None for task in self.store.tasks.values()):
            await asyncio.sleep(LOOK_SECONDS)
            if self.loop.time() > END_SECONDS_MAX:
                raise SystemExit(f"not all tasks had ended after {END_SECONDS_MAX:g} simulated seconds")

    def list_instants(self, kind: type[BreakerOpened | BreakerClosed]) -> list[float]:
        """When a breaker was opened, or closed."""
        rows = [row for row in self.store.log if any(isinstance(event, kind) for event in read_events(row.events))]
        return [(row.at - self._began) / MICROSECONDS for row in rows]

    def find_last_end(self) -> float:
        """When the last task ended."""
        return max(((task.ended_at or 0) - self._began) / MICROSECONDS for task in self.store.tasks.values())

    def count_charged(self) -> int:
        """Attempts that steps were charged for."""
        return sum(step.failure_count for steps in self.store.steps.values() for step in steps.values())


def outage(tasks: int) -> dict[str, float]:
    """The figures of ``outage``. Raises SystemExit - a task was not processed, or the record is wrong."""
    world = OutageWorld(tasks)
    result = world.run()
    if result.violations or result.states != {TaskState.PROCESSED: tasks}:
        raise SystemExit(f"{result.states}, {result.violations[:5]}")
    back_at = DOWN_AT + DOWN_SECONDS
    opened_at, closed_at = world.list_instants(BreakerOpened)[0], world.list_instants(BreakerClosed)[-1]
    calls = [call for call in service.calls if call[0] < back_at]
    while_open = [at for at, _ in calls if at > opened_at]
    canaries = [at for at, began_at in calls if began_at > opened_at]
    cool_off = Breaker().cool_off_seconds
    answered_at = min(service.succeeded_at)
    return {
        "calls an interval": count_closest(while_open, cool_off),
        "charged": world.count_charged(),
        "full flow": closed_at - answered_at,
        "canaries an interval": count_closest(canaries, cool_off),
        "canaries": len(canaries),
        "under way": len(while_open) - len(canaries),
        "before": len(calls) - len(while_open),
        "first success": answered_at - back_at,
        "closed": closed_at - back_at,
        "last end": world.find_last_end() - back_at,
    }


def count_closest(instants: list[float], seconds: float) -> int:
    """The most of these instants, in order, within so many seconds."""
    return max((bisect_left(instants, at + seconds) - index for index, at in enumerate(instants)), default=0)
