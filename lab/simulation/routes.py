"""Two Agents that provide one step, in some of the simulated worlds: their services fail apart from each other.

Each service sees which keys reach it. A key that is not interchangeable must never reach both.
"""

import asyncio
from random import Random
from typing import Any

from arriero.declare.attempt import Attempt, Undo
from arriero.declare.steps import Agent
from arriero.declare.workflows import Workflow, workflow
from arriero.model.policies import Breaker, Retry, Supervision

from .shop import REMOTE

ROUTES_SHARE = 0.4  # of the seeds with operators
OF_TASKS = 0.5  # of the tasks there
_breaker = Breaker(minimum=4, window=4, cool_off=1, ramp=2)
_patient = Supervision(attempts=50)
_retry = Retry(tries=2, delay=0.05)

near = Agent("near", max_in_flight=2, breaker=_breaker)
far = Agent("far", provides=near, max_in_flight=1, breaker=_breaker, preference=1)
SERVICES = ("near", "far")


@near.step(complete_within=1.5, retry=_retry, supervision=_patient)
async def send(attempt: Attempt, n: int, refuse: bool = False) -> int:
    REMOTE.get().reach_service("near", attempt.idempotency_key)
    return await REMOTE.get().do(attempt, refuse) + n


@send.compensation(complete_within=1.5, supervision=_patient)
async def call_back(undo: Undo[int], n: int, refuse: bool = False) -> None:
    REMOTE.get().reach_service("near", undo.forward_key)
    await REMOTE.get().undo(undo)


@far.step(name="send")
async def send_far(attempt: Attempt, n: int, refuse: bool = False) -> int:
    REMOTE.get().reach_service("far", attempt.idempotency_key)
    return await REMOTE.get().do(attempt, refuse) + n


@send_far.compensation
async def call_back_far(undo: Undo[int], n: int, refuse: bool = False) -> None:
    REMOTE.get().reach_service("far", undo.forward_key)
    await REMOTE.get().undo(undo)


@near.step(complete_within=1.5, retry=_retry, supervision=_patient, interchangeable=True)
async def forward(attempt: Attempt, n: int, refuse: bool = False) -> int:
    REMOTE.get().refuse_if_down("near")
    return await REMOTE.get().do(attempt, refuse) + n


@forward.compensation(complete_within=1.5, supervision=_patient)
async def stop_forwarding(undo: Undo[int], n: int, refuse: bool = False) -> None:
    REMOTE.get().refuse_if_down("near")
    await REMOTE.get().undo(undo)


@far.step(name="forward")
async def forward_far(attempt: Attempt, n: int, refuse: bool = False) -> int:
    REMOTE.get().refuse_if_down("far")
    return await REMOTE.get().do(attempt, refuse) + n


@forward_far.compensation
async def stop_forwarding_far(undo: Undo[int], n: int, refuse: bool = False) -> None:
    REMOTE.get().refuse_if_down("far")
    await REMOTE.get().undo(undo)


@workflow
async def by_either(n: int, refuse: bool) -> int:
    first, second = await asyncio.gather(send(n), forward(n))
    return await send(first + second, refuse)


class Routes:
    """Routing in one simulated world.

    Args:
        random: a separate source, so that a world without it is the same as before.
    """

    agents: tuple[Agent, ...] = (near, far)
    workflow: Workflow[[int, bool], int] = by_either
    workflows = (by_either,)

    def __init__(self, random: Random) -> None:
        self._random = random

    def choose(self, workflow: Any) -> Any:
        """The workflow of a task: this one, or as it was drawn."""
        return self.workflow if self._random.random() < OF_TASKS else workflow

    async def fail(self, down: set[str], now: Any, until: float) -> None:
        """One of the services is down for a while, again and again, seldom both."""
        while now() < until:
            await asyncio.sleep(self._random.uniform(1, 5))
            down.add(self._random.choice(SERVICES))
            await asyncio.sleep(self._random.uniform(1, 8))
            if self._random.random() < 0.8:
                down.clear()
        down.clear()


def draw_routes(seed: int) -> Routes | None:
    """Draw whether routing is part of the world of a seed."""
    random = Random(f"routes-{seed}")
    return Routes(random) if random.random() < ROUTES_SHARE else None
