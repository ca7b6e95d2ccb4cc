"""The election of the Supervisors under faults, and its oracle: who may believe that it leads, and until when.

Nemesis and oracle stand where the calls of a process reach the store. The nemesis freezes a leader between its read and its
write until another one leads, kills it there or around its commit, loses and delays the answers to its renewals, and restarts the
store. The clocks of processes go apart by themselves.

The oracle knows when each request for the lease left, by the clock of the world. A process may trust its lease for so long
after that as the documents say, at the rate of its own clock. The oracle computes this with separate numbers, and looks
whenever time continues.
"""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

import msgspec

from arriero.audit.check import Violation
from arriero.errors import StoreError
from arriero.model.commands import EndByLimit, FreeTask, Recover
from arriero.model.leases import LeaseRow
from arriero.store.contract import SUPERVISOR_LEASE
from arriero.store.memory import MemoryStore

from .faults import Faults
from .loop import SimulatedLoop

TRUSTED_SHARE = 0.8  # of a lease, as docs/internals/processes-and-leases.md says
DRIFT_MAX = 0.05  # of a clock: far more than quartz, and far less than the margin of a lease
ROUNDING_SECONDS = 1e-6
LOST_SHARES = (0.3, 1.5)  # of a lease: how long the answers to renewals are lost, or one of them is late
PAUSE_SHARES = (2.0, 4.0)  # of a lease: how long a leader is blocked if nobody takes over
WAKE_SECONDS = (0.0, 0.3)  # after another one leads
FIRST_LOOK_SECONDS = (0.2, 0.8)  # that the new leader's first answer is late, so that the old one may write before it
DOWN_SECONDS = (0.3, 2.0)
RESTART_EVERY_SECONDS = (4.0, 15.0)
START_AGAIN_SECONDS = (0.1, 4.0)
TAKE_OVER_MARGIN_SECONDS = 1.0  # what requests and answers take


class Believer(msgspec.Struct, frozen=True):
    """A process that lives: its number in the simulation and in the store, and whether it believes that it leads."""

    process: int
    process_no: int
    believes: bool


class Election:
    """See the module.

    Args:
        get_leader_seconds: the length of the lease in this world.
        crash: kills a process, and starts its node again after that many seconds.
        list_believers: the processes that live.
    """

    def __init__(
        self,
        *,
        store: MemoryStore,
        loop: SimulatedLoop,
        faults: Faults,
        random: Random,
        get_leader_seconds: Callable[[], float],
        crash: Callable[[int, float], None],
        list_believers: Callable[[], Sequence[Believer]],
    ) -> None:
        self._store = store
        self._loop = loop
        self._faults = faults
        self._random = random
        self._get_leader_seconds = get_leader_seconds
        self._crash = crash
        self._list_believers = list_believers
        self._rates: defaultdict[int, float] = defaultdict(lambda: 1.0)  # of clocks, by process
        self._down_until = 0.0
        self._lost_until: defaultdict[int, float] = defaultdict(float)
        self._paused: set[int] = set()
        self._new: set[int] = set()  # leaders that have not looked yet, while a former one is blocked
        self._may_trust_until: defaultdict[int, float] = defaultdict(float)  # by the clock of the world
        self._led_until = 0.0  # when a process was last seen to lead
        self.violations: list[Violation] = []
        self.elected_at: list[float] = []  # when each new leader got its answer

    # --- clocks
    def draw_rate(self, process: int) -> float:
        """Draw how fast the clock of a process goes."""
        if self._faults.strikes("clock_drift", self._random):
            self._rates[process] = 1 + self._random.uniform(-DRIFT_MAX, DRIFT_MAX)
        return self._rates[process]

    # --- the nemesis
    async def restart_store(self, until: float) -> None:
        """Restart the store now and then: meanwhile it answers nobody, and what it was asked just before may be written."""
        while self._loop.time() < until:
            await asyncio.sleep(self._random.uniform(*RESTART_EVERY_SECONDS))
            if self._faults.strikes("store_restart", self._random):
                self._down_until = self._loop.time() + self._random.uniform(*DOWN_SECONDS)

    async def before(self, name: str, process: int, args: Sequence[Any]) -> None:
        """A request has reached the store. Raises StoreError - it gets nowhere."""
        self._refuse_while_down(name)
        if name == "apply" and any(map(is_of_a_leader, args[0])):
            await self._crash_leader(process)
        if _is_about_the_lease(name, args):
            if name == "renew_lease" and self._faults.strikes("renewal_lost", self._random):
                self._lost_until[process] = self._loop.time() + self._draw_share(LOST_SHARES)
            if self._is_lost(process) and self._random.random() < 0.5:
                raise StoreError(f"simulated: {name} was lost")
            if self._random.random() < 0.5:
                await self._delay_renewal(name)

    async def after(self, name: str, process: int, args: Sequence[Any], answer: Any, left_at: float) -> None:
        """The store has answered, and the answer is in transit. Raises StoreError - it is lost."""
        if _is_about_the_lease(name, args):
            await self._answer_about_lease(name, process, args, answer, left_at)
        elif name == "load_overdue" and (answer.expired or answer.starved or answer.past_limit or answer.stuck):
            await self._strike_reader(process)
        elif name == "apply" and any(map(is_of_a_leader, args[0])):
            await self._crash_leader(process)
        self._refuse_while_down(name)

    def _refuse_while_down(self, name: str) -> None:
        if self._faults.active and self._loop.time() < self._down_until:
            raise StoreError(f"simulated: the store restarts, {name} is not answered")

    def _is_lost(self, process: int) -> bool:
        return self._faults.active and self._loop.time() < self._lost_until[process]

    def _draw_share(self, shares: tuple[float, float]) -> float:
        return self._get_leader_seconds() * self._random.uniform(*shares)

    async def _delay_renewal(self, name: str) -> None:
        if name == "renew_lease" and self._faults.strikes("renewal_late", self._random):
            await asyncio.sleep(self._draw_share(LOST_SHARES))

    async def _crash_leader(self, process: int) -> None:
        if self._faults.strikes("leader_crash", self._random):
            self._crash(process, self._random.uniform(*START_AGAIN_SECONDS))
            await asyncio.sleep(0)  # nothing of it continues from here

    async def _strike_reader(self, process: int) -> None:
        """A leader has read what is overdue, and is about to decide."""
        if process in self._new:
            self._new.discard(process)
            await asyncio.sleep(self._random.uniform(*FIRST_LOOK_SECONDS))
        await self._crash_leader(process)
        if self._faults.strikes("leader_pause", self._random):
            self._paused.add(process)
            self._loop.freeze(process)
            self._loop.call_later(self._draw_share(PAUSE_SHARES), self._wake, process)
            await asyncio.sleep(0)  # it is blocked from here

    def _wake(self, process: int) -> None:
        if process in self._paused:
            self._paused.discard(process)
            self._loop.wake(process)

    # --- the oracle
    async def _answer_about_lease(
        self, name: str, process: int, args: Sequence[Any], answer: Any, left_at: float
    ) -> None:
        process_no, row = args[1], self._store.leases[SUPERVISOR_LEASE]
        if name == "renew_lease":
            is_granted = bool(answer)
            if is_granted and (row.holder, row.term) != (process_no, args[2]):
                said = f"process {process_no} renewed term {args[2]}, which is {row.holder}'s under term {row.term}"
                self.violations.append(Violation("I35", "", said))
        else:
            is_granted = isinstance(answer, LeaseRow) and answer.holder == process_no
            if is_granted:
                self._note_elected(process)
        if self._random.random() < 0.5:
            await self._delay_renewal(name)
        if self._is_lost(process):
            raise StoreError(f"simulated: the answer to {name} was lost")
        if is_granted:
            trusted = left_at + TRUSTED_SHARE * self._get_leader_seconds() / self._rates[process]
            self._may_trust_until[process] = max(self._may_trust_until[process], trusted)

    def _note_elected(self, process: int) -> None:
        self.elected_at.append(self._loop.time())
        for paused in sorted(self._paused - {process}):
            self._new.add(process)
            self._loop.call_later(self._random.uniform(*WAKE_SECONDS), self._wake, paused)

    def look(self) -> None:
        """Time has continued: nobody believes longer than it may, no two believe at the same time, and the store says the same."""
        now = self._loop.time()
        believers = [one for one in self._list_believers() if one.believes]
        for one in believers:
            if now > self._may_trust_until[one.process] + ROUNDING_SECONDS:
                until = self._may_trust_until[one.process]
                self._convict(
                    "I36", f"process {one.process_no} leads at {now:.3f}, it may trust its lease until {until:.3f}"
                )
            row = self._store.leases[SUPERVISOR_LEASE]
            if row.holder != one.process_no or row.until < self._store.now():
                self._convict("I36", f"process {one.process_no} leads at {now:.3f}, the lease is {row.holder}'s")
        if len(believers) > 1:
            self._convict("I36", f"processes {[one.process_no for one in believers]} lead at {now:.3f}, all at once")
        if believers:
            self._led_until = now

    def judge_gap(self, loss_at: float, poll_seconds: float) -> None:
        """Since ``loss_at`` nothing was lost: a process must lead once a lease, a poll and a margin have passed."""
        now = self._loop.time()
        if self._led_until <= loss_at and now > loss_at + self.compute_gap_max(poll_seconds):
            self._convict("I38", f"nobody led from {loss_at:.3f} to {now:.3f}")

    def compute_gap_max(self, poll_seconds: float) -> float:
        """The longest time without a leader after a single loss (I38)."""
        return self._get_leader_seconds() + poll_seconds + TAKE_OVER_MARGIN_SECONDS

    def has_led_since(self, instant: float) -> bool:
        """Returns True if a process was seen to lead after an instant."""
        return self._led_until > instant

    def _convict(self, invariant: str, detail: str) -> None:
        if len(self.violations) < 10:  # the first ones say
            self.violations.append(Violation(invariant, "", detail))


def _is_about_the_lease(name: str, args: Sequence[Any]) -> bool:
    return name in ("acquire_lease", "renew_lease") and args[0] == SUPERVISOR_LEASE


def is_of_a_leader(command: object) -> bool:
    """Returns True if only a leader sends such a command."""
    return isinstance(command, Recover | EndByLimit) or (isinstance(command, FreeTask) and command.term is not None)
