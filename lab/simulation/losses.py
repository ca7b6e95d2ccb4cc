"""A world in which only the leading process is lost, once and again: how long nobody leads is measured each time."""

import asyncio

from arriero.runtime.node import Node

from .election import Believer
from .faults import Faults
from .loop import PROCESS
from .people import QUEUES
from .world import NODES, World

LOSSES = ("crash", "freeze", "stop")
SETTLE_SECONDS = 12.0  # after each loss, until the next: all processes run again


class LossWorld(World):
    """See the module. ``losses``: kinds of ``LOSSES``, in their order."""

    def __init__(self, seed: int, losses: tuple[str, ...]) -> None:
        super().__init__(seed, tasks=4, faults=Faults(), people=False, keys=False)
        self._losses = losses
        self.gaps: list[tuple[str, float]] = []  # each loss, and for how many seconds nobody led

    async def play(self) -> None:
        """Tasks run; meanwhile one leader after the other is lost."""
        clients = [task for number in range(self._tasks) for task in self.spawn(self._client(number), 0)]
        for queue in QUEUES:
            self.spawn(self.people.read(queue), 0)
        for kind in self._losses:
            await asyncio.sleep(self.random.uniform(SETTLE_SECONDS, SETTLE_SECONDS + 3))
            await self._lose_leader(kind)
        await asyncio.gather(*clients)
        await self._heal()

    async def _lose_leader(self, kind: str) -> None:
        assert self.election is not None
        (leader,) = [one for one in self.list_believers() if one.believes]
        lost_at = self.loop.time()
        if kind == "crash":
            self.crash_process(leader.process, SETTLE_SECONDS / 2)
        elif kind == "freeze":
            self.loop.freeze(leader.process)
            self.loop.call_later(3 * self.settings.leader_seconds / 2, self.loop.wake, leader.process)
        else:
            self._stop(leader)
        while not any(one.believes and one.process_no != leader.process_no for one in self.list_believers()):
            await asyncio.sleep(0.01)
            self.election.judge_gap(lost_at, self.settings.poll_seconds)
        self.gaps.append((kind, self.loop.time() - lost_at))

    def _stop(self, leader: Believer) -> None:
        """As SIGTERM does; the node starts again later."""
        (number,) = [number for number in range(NODES) if self._nodes[number][0] == leader.process]
        _, node = self._nodes[number]
        self.spawn(self._stop_node(node), leader.process)
        self.loop.call_later(SETTLE_SECONDS / 2, self._start_node, number)

    def _look_at_loops(self) -> None:
        """The loops of a process that was asked to end do end."""

    @staticmethod
    async def _stop_node(node: Node) -> None:
        assert PROCESS.get()
        await node.stop()
