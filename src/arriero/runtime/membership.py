"""This process among the others: its lease, and freeing what lost ones held. No leader is needed for that."""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any

from ..core.lease import (
    compute_trusted_until,
    is_alive,
    mark_as_leaving,
    may_retire,
    on_process_lost,
    read_process_about,
)
from ..errors import StoreError
from ..model.answers import Applied
from ..model.processes import ProcessRow
from ..store.contract import Renewal
from ..system.loops import Loop, LoopGuard
from .crash_points import reach
from .ports import Keeper
from .process_context import ProcessContext

logger = logging.getLogger("arriero")

HELD_MAX = 1_000_000  # more than any process holds
RENEWALS_PER_LEASE = 4  # so that a lost renewal or two do not cost the lease
QUICK_SHARE = 0.1  # of a lease: a renewal that took no longer leaves time for something else before the next


class Membership:
    """Lease of this process, and recovery of lost processes.

    Args:
        on_lost: called when this process was declared lost: what it held is others' now.
        spawn: runs a coroutine as a part of this process.
        standing_still: what runs on the event loop while it is blocked; empty: nobody knows.
        about_now: what this process says of itself by now, given what it said as it registered.
        room_now: what it reports of its Agents with each renewal, as JSON text; called in the thread that renews.
    """

    def __init__(
        self,
        context: ProcessContext,
        *,
        on_lost: Callable[[], None],
        spawn: Callable[[Coroutine[Any, Any, None]], None],
        standing_still: Callable[[], str] = str,
        about_now: Callable[[str], str] = str,
        room_now: Callable[[], str] = str,
    ) -> None:
        self._context = context
        self._store = context.store
        self._clock = context.clock
        self._settings = context.settings
        self._on_lost = on_lost
        self._spawn = spawn
        self._standing_still = standing_still
        self._about_now = about_now
        self._room_now = room_now
        self._about = self._about_told = "{}"
        self._others: tuple[ProcessRow, ...] = ()  # as they were at the last renewal
        self._is_hang_told = False
        self._seen_alive = 0.0  # when the event loop last answered
        self._loop: asyncio.AbstractEventLoop | None = None
        self._keeper: Keeper | None = None
        self._freeing: set[int] = set()
        self._is_over = False
        self._is_retired = False
        self._lease_guard = LoopGuard(
            Loop.LEASE, context.clock.monotonic, unanswered="the process's lease could not be renewed: %s"
        )
        self._freeing_guard = LoopGuard(
            Loop.FREEING, context.clock.monotonic, unanswered="what a lost process held could not be freed yet: %s"
        )
        self.other_schedulers = 0  # alive at the last renewal

    async def register(self, about: str = "{}") -> None:
        """Register in the store as a new process start; ``about`` says what it runs, as JSON text."""
        self._store.announce(self._context.actor)
        self._about = self._about_told = about
        left_at = self._clock.monotonic()
        reach("before_register")
        self._context.process_no = await self._store.register(self._context.actor, self._settings.lease_seconds, about)
        reach("after_register")
        self._trust_from(left_at)

    async def start(self) -> None:
        """Free what dead processes left behind, then keep the lease."""
        self._loop = asyncio.get_running_loop()
        left_at = self._clock.monotonic()
        renewal = await self._store.renew(self._context.process_no, self._settings.lease_seconds, self._tell_room())
        self._process_renewal(renewal, left_at)
        self._keeper = self._context.ports.keep(self._run_renewals)

    async def announce_leaving(self) -> None:
        """Notify the others that this process was asked to end, so that no task is charged if it is killed as it drains."""
        self._about = mark_as_leaving(self._about)
        try:
            await self._store.describe(self._context.process_no, self._about)
        except StoreError as error:  # then it counts as lost if it is killed now
            logger.info("the other processes could not be notified that this one drains: %s", error)

    def distrust(self) -> None:
        """Trust the lease no more, whatever renewals still say."""
        self._is_over = True
        self._context.trusted_until = 0.0

    async def stop(self, *, retire: bool) -> None:
        """Stop renewing; with ``retire`` say that nothing is held any longer. May be called again."""
        self.distrust()
        if self._keeper is not None:
            await self._keeper.stop()
        if retire and not self._is_retired:
            await self._retire(self._context.process_no, known_dead=True)
            self._is_retired = True

    def is_renewing(self) -> bool:
        """Returns True if the lease is still being renewed."""
        return self._keeper is not None and self._keeper.is_alive()

    def _trust_from(self, left_at: float) -> None:
        self._context.trusted_until = compute_trusted_until(left_at, self._settings.lease_seconds)
        self._note_alive()

    def _note_alive(self) -> None:
        """Note that the event loop continues; runs there."""
        self._seen_alive = self._clock.monotonic()

    async def _run_renewals(self) -> None:
        """Renew the lease off the event loop. Renewal needs progress of the loop: one that is blocked loses its lease."""
        assert self._loop is not None
        try:
            while True:
                await self._clock.sleep(self._settings.lease_seconds / RENEWALS_PER_LEASE)
                with self._lease_guard:
                    await self._renew(self._loop)
        finally:  # however it ended: a process that does not renew must not continue as if it did
            with suppress(RuntimeError):  # the event loop has ended, and the process with it
                if not self._is_over:
                    self._loop.call_soon_threadsafe(self._lose)

    async def _renew(self, loop: asyncio.AbstractEventLoop) -> None:
        # Asked of the loop itself: of a store that is away nothing follows about the loop.
        loop.call_soon_threadsafe(self._note_alive)
        left_at = self._clock.monotonic()
        stood = left_at - self._seen_alive
        if stood > self._settings.hang_seconds:
            self._tell_hang(stood)
        else:
            self._is_hang_told = False
            reach("before_renew")
            renewal = await self._store.renew(self._context.process_no, self._settings.lease_seconds, self._tell_room())
            reach("after_renew")
            loop.call_soon_threadsafe(self._process_renewal, renewal, left_at)
            if self._clock.monotonic() - left_at > self._settings.lease_seconds * QUICK_SHARE:
                return  # the store is slow: one more question would put off the next renewal
        await self._describe()

    async def _describe(self) -> None:
        """Notify the others that the event loop is blocked or was blocked. Runs off the loop, which cannot do that itself."""
        try:
            about = self._about_now(self._about)
            if about != self._about_told:
                await self._store.describe(self._context.process_no, about)
                self._about_told = about
        except Exception as error:  # reported at the next renewal; this one must not fail with it
            self._lease_guard.tell(error)

    def _tell_room(self) -> str:
        """Build the report that goes with a renewal. If the report fails, the renewal must still go out."""
        try:
            return self._room_now()
        except Exception as error:
            self._lease_guard.tell(error)
            return ""

    @property
    def others(self) -> tuple[ProcessRow, ...]:
        """The other processes as they were at the last renewal."""
        return self._others

    def find_description(self, process_no: int) -> str:
        """The description of another process at the last renewal; empty when it is not known."""
        return next((other.about for other in self._others if other.process_no == process_no), "")

    def _tell_hang(self, seconds: float) -> None:
        """Log a standstill, once each."""
        if self._is_hang_told:
            return
        self._is_hang_told = True
        ran = self._standing_still()
        logger.error(
            "the event loop has been blocked for %.0f s%s: the process's lease is not renewed, others take over what it holds",
            seconds,
            f", {ran}" if ran else "",
        )

    def _lose(self) -> None:
        self.distrust()
        self._on_lost()

    def _process_renewal(self, renewal: Renewal, left_at: float) -> None:
        if self._is_over:  # it was in transit as this process stopped
            return
        if not renewal.renewed:
            self._lose()
            return
        self._trust_from(left_at)
        self._others = renewal.others
        schedulers = 0
        for other in renewal.others:
            try:
                self._free_if_lost(other, renewal)
                schedulers += is_alive(other, "scheduler", renewal.now)
            except Exception as error:  # one row that cannot be read keeps nobody else from being freed
                self._freeing_guard.tell(error)
        self.other_schedulers = schedulers

    def _free_if_lost(self, other: ProcessRow, renewal: Renewal) -> None:
        if other.process_no in self._freeing:
            return
        known_dead = not other.retired and self._store.is_known_dead(other.instance)
        dead_or_lapsed = may_retire(
            renewal.now, other.lease_until, known_dead=known_dead, nobody_frees_until=renewal.nobody_frees_until
        )
        if other.retired or dead_or_lapsed:
            self._spawn(self._free(other, known_dead=known_dead))
            self._freeing.add(other.process_no)

    async def _retire(self, process_no: int, *, known_dead: bool) -> bool:
        reach("before_retire")
        retired = await self._store.retire(process_no, by=self._context.actor, known_dead=known_dead)
        reach("after_retire")
        return retired

    async def _free(self, other: ProcessRow, *, known_dead: bool) -> None:
        try:
            with self._freeing_guard:  # the next renewal looks again
                await self._free_all(other, known_dead=known_dead)
        finally:
            self._freeing.discard(other.process_no)

    async def _free_all(self, other: ProcessRow, *, known_dead: bool) -> None:
        if not other.retired and not await self._retire(other.process_no, known_dead=known_dead):
            return
        # All together: whether a task on probation is among them decides who is charged.
        while held := await self._store.load_held(other.process_no, HELD_MAX):
            about = read_process_about(other)
            commands = on_process_lost(
                held,
                other.process_no,
                self._context.actor,
                was_leaving=about.leaving,
                held_from=self._settings.lost_processes_max,
                pulled=about.pulled,
            )
            reach("before_free")
            answers = await asyncio.gather(*(self._context.committer.ask(command) for command in commands))
            reach("after_free")
            for command, answer in zip(commands, answers, strict=True):
                if isinstance(answer, Applied):
                    self._context.on_applied(command, answer)
            if not any(isinstance(answer, Applied) for answer in answers):
                return  # another process frees it too; the next renewal looks again
