"""Holds the Supervisors' lease: acquire, work under its term, renew, resign. Safety never depends on it."""

import asyncio
import logging
from collections.abc import Awaitable, Callable

from ..core.lease import trusted_until
from ..errors import StoreError
from ..model import LeaseRow
from ..store.base import SUPERVISOR_LEASE, StateStore
from .crash_points import reach
from .ports import Ports
from .settings import Settings

logger = logging.getLogger("arriero")


class Leader:
    """Runs ``work(term)`` again and again while this process leads.

    The lease is renewed before a pass, so a pass that hangs loses it; it is trusted until the start of the last
    successful renewal plus its length less a margin, on our own monotonic clock.
    """

    def __init__(
        self,
        work: Callable[[int], Awaitable[int]],
        *,
        store: StateStore,
        ports: Ports,
        settings: Settings,
        actor: str,
        process_no: int,
    ) -> None:
        self._work = work
        self._store = store
        self._ports = ports
        self._settings = settings
        self._actor = actor
        self._process_no = process_no
        self._never = asyncio.Event()
        self.term: int | None = None
        self._trusted_until = 0.0
        self._renewed_at = 0.0

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            try:
                await self._pass()
            except StoreError as error:
                logger.warning("the Supervisor could not work: %s", error)
            except Exception:  # one row nobody can decide about must not end the role
                logger.exception("a pass of the Supervisor broke; the next one begins anew")
            await self._ports.clock.idle(self._never, self._settings.supervise_seconds)

    async def _pass(self) -> None:
        now = self._ports.clock.monotonic()
        if self.term is None or now >= self._trusted_until:
            await self._acquire(now)
        elif now - self._renewed_at >= self._settings.leader_seconds / 3:
            await self._renew(now, self.term)
        if self.term is not None and self._ports.clock.monotonic() < self._trusted_until:
            while await self._work(self.term) >= self._settings.batch_max:
                pass  # more is waiting; a full pass is followed by another at once

    async def _acquire(self, left_at: float) -> None:
        self.term = None
        reach("before_lease")
        lease: LeaseRow = await self._store.acquire_lease(
            SUPERVISOR_LEASE, self._process_no, self._actor, self._settings.leader_seconds
        )
        if lease.holder == self._process_no:
            reach("after_lease")
            self.term = lease.term
            self._trust(left_at)

    async def _renew(self, left_at: float, term: int) -> None:
        if await self._store.renew_lease(SUPERVISOR_LEASE, self._process_no, term, self._settings.leader_seconds):
            self._trust(left_at)
        else:
            self.term = None

    def _trust(self, left_at: float) -> None:
        self._renewed_at = left_at
        self._trusted_until = trusted_until(left_at, self._settings.leader_seconds)

    async def resign(self) -> None:
        """Give the lease back, so that the next leader need not wait."""
        if self.term is not None:
            term, self.term = self.term, None
            await self._store.release_lease(SUPERVISOR_LEASE, self._process_no, term, self._actor)
