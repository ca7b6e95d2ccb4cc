"""A world in which a service is silent for a while: hundreds of attempts expire at the same time, on nodes that live or die."""

import asyncio

import msgspec

from arriero.client.app import App
from arriero.declare.attempt import Attempt
from arriero.declare.steps import Agent
from arriero.declare.workflows import workflow
from arriero.model.policies import Retry, Supervision

from .faults import Faults
from .shop import REMOTE
from .world import FAULT_SECONDS, NODES, SETTINGS, World

SILENT_SECONDS = 10.0
PER_SECOND = 20

# Without a breaker: this world shows the rate alone.
wide = Agent("wide", max_in_flight=1_000, breaker=None)


@wide.step(complete_within=4.0, supervision=Supervision(attempts=50), retry=Retry(tries=1))
async def call_silent_service(attempt: Attempt, n: int) -> int:
    if asyncio.get_running_loop().time() < SILENT_SECONDS:
        await asyncio.Event().wait()
    return await REMOTE.get().do(attempt, refuse=False) + n


@workflow
async def reach_out(n: int) -> int:
    return await call_silent_service(n)


class OutageWorld(World):
    """See the module.

    Args:
        tasks: that call the service, all at the same time.
        leaders_lost: how often the leading node dies while the attempts expire.
    """

    def __init__(self, seed: int, *, tasks: int, leaders_lost: int = 0) -> None:
        super().__init__(seed, tasks=tasks, faults=Faults(), people=False, keys=False)
        self.settings = msgspec.structs.replace(
            SETTINGS, batch_max=100, redispatch_per_second_max=PER_SECOND, tasks_max=1_000
        )
        self.app = App("simulated", agents=(wide,), workflows=(reach_out,))
        self._leaders_lost = leaders_lost

    async def _main(self) -> None:
        for number in range(NODES):
            self._start_node(number)
        await asyncio.sleep(1.0)
        calls = [
            self.submission(reach_out(number), f"order-{number}", self.random, number) for number in range(self._tasks)
        ]
        await self.submit(
            [msgspec.structs.replace(call, reply_to=None) for call in calls]
        )  # nobody reads statuses here
        for _ in range(self._leaders_lost):
            await self._lose_leader_in_recovery()
        await asyncio.sleep(max(0.0, FAULT_SECONDS - self.loop.time()))
        await self._heal()

    async def _lose_leader_in_recovery(self) -> None:
        """Let the leader decide about some, and die; its successor decides about the others."""
        before = self.count_recovered()
        while self.count_recovered() == before:
            await asyncio.sleep(0.1)
            self._look_at_loops()
        for number, (process, node) in list(self._nodes.items()):
            if node.session is not None and hasattr(node.session, "leader") and node.session.leader.is_leading():
                self.loop.crash(process)
                self.faults.fired["crash"] += 1
                await asyncio.sleep(0.5)
                self._start_node(number)

    def count_recovered(self) -> int:
        """How often an attempt expired and was recovered."""
        return sum(bytes(row.events).count(b'"recover.applied"') for row in self.store.log)

    def due_times(self) -> list[int]:
        """Instants at which attempts that expired became due again, in their order."""
        events = [event for row in self.store.log for event in msgspec.json.decode(row.events)]
        return sorted(event["not_before"] for event in events if event["type"] == "recover.applied")
