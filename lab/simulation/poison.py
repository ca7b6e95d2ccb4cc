"""Requests that always fail, in some of the simulated worlds, beside others that succeed once the service is healthy.

They come with the highest priority, so a breaker would ask for nothing else if it could. Each must end as its policy says.
"""

import asyncio
from random import Random
from typing import TYPE_CHECKING

import msgspec

from arriero.declare.attempt import Attempt
from arriero.declare.steps import Agent
from arriero.declare.workflows import Workflow, workflow
from arriero.model.policies import Retry, Supervision

from .shop import left, look

if TYPE_CHECKING:
    from .world import World

SHARE = 0.25  # of the seeds with operators
URGENT = 9


@left.step(complete_within=1.5, effect_free=True, retry=Retry(tries=2, delay=0.05), supervision=Supervision(attempts=2))
async def stumble(attempt: Attempt, n: int) -> int:
    await asyncio.sleep(0.01)
    raise RuntimeError("no service can do this")


@workflow
async def poisoned(n: int, refuse: bool) -> int:
    return await stumble(n)


@workflow
async def healthy(n: int, refuse: bool) -> int:
    return await look(n)


class Poison:
    """Poisoned tasks of one world, and healthy ones that come until the poisoned ones have ended."""

    agents: tuple[Agent, ...] = ()
    workflows: tuple[Workflow[[int, bool], int], ...] = (poisoned, healthy)

    def __init__(self, world: "World", random: Random) -> None:
        self._world = world
        self._random = random
        self._names = [f"poison-{number}" for number in range(random.randrange(1, 4))]

    async def submit(self) -> None:
        """Submit the poisoned tasks, each at some moment."""
        for number, name in enumerate(self._names):
            await asyncio.sleep(self._random.uniform(0, 5))
            command = self._world.submission(poisoned(number, False), name, self._random, number)
            await self._world.submit([msgspec.structs.replace(command, priority=URGENT)])

    async def submit_healthy(self) -> None:
        """Submit healthy tasks one after the other: without them no call shows that the service is healthy."""
        number = 0
        while any(not self._world.is_over(name) for name in self._names):
            name = f"healthy-{number}"
            await self._world.submit([self._world.submission(healthy(number, False), name, self._random, number)])
            await asyncio.sleep(self._random.uniform(0.5, 2))
            number += 1


def draw_poison(world: "World", seed: int, *, may_have: bool) -> Poison | None:
    """Draw whether poisoned requests are part of the world of a seed. A source of its own leaves others as they were."""
    random = Random(f"poison-{seed}")
    return Poison(world, random) if random.random() < SHARE and may_have else None
