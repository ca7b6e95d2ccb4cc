"""Holds the Supervisors' lease: acquire, work under its term, renew, resign. Safety never depends on it."""

import asyncio
import logging
from collections.abc import Awaitable, Callable

from ..core.lease import compute_trusted_until
from ..model.leases import LeaseHolder, LeaseRow
from ..store.contract import SUPERVISOR_LEASE
from ..system.loops import Loop, LoopGuard
from .crash_points import reach
from .process_context import ProcessContext

logger = logging.getLogger("arriero")

PASS_SECONDS_MAX = 60.0  # more than a store's longest answer and its repeats: a pass that lasts longer hangs


class Leader:
    """Runs ``work(term)`` again and again while this process leads.

    Two loops: ``run`` keeps the lease, ``recover`` works under it, so that a pass that takes long costs no lease. A process
    that does not lead asks for the lease every ``supervise_seconds``, and immediately when it hears that nobody leads. A pass
    that hangs gives the lease back, and while it hangs this process does not take it again: another one may lead.
    The lease is trusted until the start of the last successful renewal plus its length less a margin, on our own
    monotonic clock.

    Args:
        period: seconds until the next pass, asked after each; None: always ``supervise_seconds``.
    """

    def __init__(
        self,
        context: ProcessContext,
        work: Callable[[int], Awaitable[int]],
        *,
        period: Callable[[], float] | None = None,
    ) -> None:
        self._work = work
        self._period = period
        self._context = context
        self._store = context.store
        self._clock = context.clock
        self._settings = context.settings
        self._leaderless = asyncio.Event()  # a caller has seen that nobody leads
        self._acquired = asyncio.Event()
        self._pass_since: float | None = None  # when the pass running began
        self.term: int | None = None
        self.led_by: LeaseHolder | None = None  # the process that led when the lease was last asked for
        self._trusted_until = 0.0
        self._renewed_at = 0.0

    async def run(self) -> None:
        """Keep the lease, until cancelled."""
        guard = LoopGuard(Loop.LEADER, self._clock.monotonic, unanswered="the Supervisors' lease could not be kept: %s")
        while True:
            self._leaderless.clear()
            with guard:
                await self._keep()
            await self._clock.idle(self._leaderless, self._settings.supervise_seconds)

    async def recover(self) -> None:
        """Work while this process leads, until cancelled."""
        guard = LoopGuard(Loop.RECOVERY, self._clock.monotonic, unanswered="the Supervisor could not work: %s")
        while True:
            with guard:  # one row nobody can decide about must not end the role
                await self.make_pass()
            await self._clock.idle(self._acquired, self._choose_wait(failed=guard.failed))

    async def try_to_lead(self) -> bool:
        """Ask for the lease once. Returns False if another process leads. Raises StoreError."""
        await self._keep()
        return self.is_leading()

    def note_leaderless(self) -> None:
        """Ask for the lease now: the store says that nobody leads."""
        if not self.is_leading():
            self._leaderless.set()

    def is_leading(self) -> bool:
        """Returns True if this process may trust that it leads."""
        return self.term is not None and self._clock.monotonic() < self._trusted_until

    def _choose_wait(self, *, failed: bool) -> float:
        """Seconds until the next pass: the shortest period after a failure, and while another process leads."""
        if failed or self._period is None or not self.is_leading():
            return self._settings.supervise_seconds
        return self._period()

    async def _keep(self) -> None:
        now = self._clock.monotonic()
        if self._pass_since is not None and now - self._pass_since > PASS_SECONDS_MAX:
            if self.term is not None:
                logger.error(
                    "a pass of the Supervisor has not ended for %.0f s: another process may lead", PASS_SECONDS_MAX
                )
                await self.resign()
        elif not self.is_leading():
            await self._acquire(now)
        elif self.term is not None and now - self._renewed_at >= self._settings.leader_seconds / 3:
            await self._renew(now, self.term)

    async def make_pass(self) -> None:
        """Work under the lease, again and again while there is a full batch of it."""
        self._acquired.clear()
        self._pass_since = self._clock.monotonic()
        try:
            while (
                self.term is not None and self.is_leading() and await self._work(self.term) >= self._settings.batch_max
            ):
                pass  # more is waiting; a full pass is followed by another immediately
        finally:
            self._pass_since = None

    async def _acquire(self, left_at: float) -> None:
        self.term = None
        reach("before_lease")
        lease: LeaseRow = await self._store.acquire_lease(
            SUPERVISOR_LEASE, self._context.process_no, self._context.actor, self._settings.leader_seconds
        )
        self.led_by = lease.holder
        if lease.holder == self._context.process_no:
            reach("after_lease")
            self.term = lease.term
            self._trust(left_at)
            self._acquired.set()

    async def _renew(self, left_at: float, term: int) -> None:
        if await self._store.renew_lease(
            SUPERVISOR_LEASE, self._context.process_no, term, self._settings.leader_seconds
        ):
            self._trust(left_at)
        else:
            self.term = None

    def _trust(self, left_at: float) -> None:
        self._renewed_at = left_at
        self._trusted_until = compute_trusted_until(left_at, self._settings.leader_seconds)

    async def resign(self) -> None:
        """Give the lease back, so that the next leader need not wait."""
        if self.term is not None:
            term, self.term = self.term, None
            await self._store.release_lease(SUPERVISOR_LEASE, self._context.process_no, term, self._context.actor)
