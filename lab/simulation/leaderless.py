"""A world without an election: every Supervisor acts all the time, each in the belief that it leads under the current term.

So the term guards nothing here. What is left are the guards of each decision: the fence and "still expired", "still past its
limit", "still stuck". The upkeep of every process runs all the time, too.
"""

from collections import Counter
from random import Random
from typing import Any

from arriero.model import Instant
from arriero.model.answers import Applied
from arriero.model.leases import LeaseRow
from arriero.runtime.ports import Ports
from arriero.runtime.upkeep import Upkeep
from arriero.store.contract import SUPERVISOR_LEASE

from .election import Election, is_of_a_leader
from .loop import PROCESS
from .store import SimulatedStore
from .world import World

TERM = 1
FOR_EVER = 1e9
NOBODY = 0  # the number of no process
REPLIES_KEEP_SECONDS = 1e6  # this world is shorter


class LeadingStore(SimulatedStore):
    """The store of a process to which the Supervisors' lease is always granted, no matter who else has it.

    Args:
        world: counts there what the Supervisors decide, and what is refused because another one came first.
    """

    def __init__(self, world: "LeaderlessWorld", unexpected: Random | None) -> None:
        super().__init__(world.network, unexpected=unexpected)
        self._world = world

    async def apply(self, batch: Any) -> Any:
        """Apply, and count."""
        answers = await super().apply(batch)
        for command, answer in zip(batch, answers, strict=True):
            if is_of_a_leader(command):
                self._world.decided[PROCESS.get()] += isinstance(answer, Applied)
                self._world.came_second += not isinstance(answer, Applied)
        return answers

    async def acquire_lease(self, name: str, process_no: int, actor: str, seconds: float) -> LeaseRow:
        """Grant it."""
        await self._network.delay()
        return LeaseRow(name, TERM, process_no, Instant(0))

    async def renew_lease(self, name: str, process_no: int, term: int, seconds: float) -> bool:
        """Prolong it."""
        await self._network.delay()
        return True

    async def release_lease(self, name: str, process_no: int, term: int, actor: str) -> None:
        """Take nothing back."""


class LeaderlessWorld(World):
    """See the module."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.decided: Counter[int] = Counter()  # decisions that were written, by process
        self.came_second = 0  # decisions that were not

    async def _main(self) -> None:
        granted = await self.store.acquire_lease(SUPERVISOR_LEASE, NOBODY, "the world", FOR_EVER)
        assert granted.term == TERM
        await super()._main()

    def _build_election(self, random: Random, may_have_faults: bool) -> Election | None:
        return None

    def build_store(self, unexpected: Random | None) -> SimulatedStore:
        """A store that always grants the lease."""
        return LeadingStore(self, unexpected)

    def build_upkeep(self, store: SimulatedStore, ports: Ports) -> Upkeep | None:
        """Upkeep in every process."""
        upkept: Any = store
        return Upkeep(store=upkept, ports=ports, replies_keep_seconds=REPLIES_KEEP_SECONDS)

    def get_judged_rate(self) -> int | None:
        """Not judged: the rate at which attempts come back is each leader's own."""
        return None
