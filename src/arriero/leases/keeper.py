"""Keeps a lease while the work runs: waits for it, renews it, sees its end, gives it back.

It runs on an event loop of its own in a thread, so that work that keeps the program's event loop busy does not cost the
lease. What the two share are single attributes, which are written whole.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Any

from ..core.lease import (
    RETRY_SECONDS_MAX,
    Belief,
    LeadershipEnd,
    LeadershipSettings,
    begin_belief,
    compute_next_renewal,
    has_ended,
    is_hung,
    is_trusted,
    suspend,
)
from ..errors import ArrieroError, LeaseUnavailable
from ..runtime.ports import ProcessClock
from ..runtime.shutdown import finish
from ..system.rate_limited_log import RateLimitedLog
from .contract import Lease, LeaseConnection, LeaseGrant, LeaseSignal

logger = logging.getLogger("arriero")
RELEASE_SECONDS_MAX = 5.0  # that a release may take; after it the lease lapses by itself


async def cancel_all(*tasks: "asyncio.Task[Any]") -> None:
    """Cancel tasks and wait until they have ended. What they raise is dropped; a cancellation of the caller is not."""
    for task in tasks:
        task.cancel()
        task.add_done_callback(lambda done: done.cancelled() or done.exception())
    await asyncio.wait(tasks)


class LeaseKeeper:
    """One term of a lease, from the first request to its end.

    Args:
        lease: to keep.
        holder: the contender's name at this start; never used again.
        clock: of the process.
        on_elected: called on the keeper's loop when the lease is granted.
        on_waiting: called on it after each look that did not bring the lease.
        on_end: called on it when the term ends, unless ``run`` was cancelled; with an error that waiting does not mend.
    """

    def __init__(
        self,
        lease: Lease,
        holder: str,
        settings: LeadershipSettings,
        clock: ProcessClock,
        on_elected: Callable[[], None],
        on_end: Callable[[BaseException | None], None],
        on_waiting: Callable[[], None],
    ) -> None:
        self.lease = lease
        self.holder = holder
        self.settings = settings
        self.clock = clock
        self.grant: LeaseGrant | None = None
        self.belief: Belief | None = None
        self.end: LeadershipEnd | None = None
        self.progress_at = 0.0
        self._on_elected = on_elected
        self._on_end = on_end
        self._on_waiting = on_waiting
        self._trouble = RateLimitedLog(logger, clock.monotonic)

    # --- asked by the work, from any thread
    def is_held(self) -> bool:
        """Returns True while the holder may act as the leader."""
        belief = self.belief
        return self.end is None and belief is not None and is_trusted(belief, self.clock.monotonic())

    def beat(self) -> None:
        """Note a proof of progress."""
        self.progress_at = self.clock.monotonic()

    def get_seconds_left(self) -> float:
        """Seconds for which the lease may still be trusted; 0: no more."""
        belief = self.belief
        if belief is None or not self.is_held():
            return 0.0
        return max(0.0, belief.trusted_until - self.clock.monotonic())

    # --- on its own loop
    async def run(self) -> None:
        """Wait for the lease, keep it until the term ends. If cancelled, give it back."""
        connection: LeaseConnection | None = None
        try:
            connection = await self._connect()
            await self._wait_for_lease(connection)
            self._on_elected()
            await self._keep(connection)
        except asyncio.CancelledError:
            self.end = self.end or LeadershipEnd.RELEASED
            raise
        except Exception as error:
            self.end = self.end or LeadershipEnd.UNRENEWED
            self._on_end(error)
        else:
            self._on_end(None)
        finally:
            if connection is not None:
                await self._leave(connection)
            self._trouble.close()

    async def _connect(self) -> LeaseConnection:
        while True:
            try:
                return await self.lease.connect()
            except LeaseUnavailable as error:
                self._warn(f"the provider cannot be reached: {error}")
                self._on_waiting()
            await self.clock.sleep(RETRY_SECONDS_MAX)

    async def _wait_for_lease(self, connection: LeaseConnection) -> None:
        settings, is_first = self.settings, True
        while True:
            left_at = self.clock.monotonic()
            try:
                grant = await connection.acquire(self.holder, settings.duration)
                if grant is not None and not has_ended(begin_belief(left_at, settings), self.clock.monotonic()):
                    self.progress_at = left_at
                    self.grant, self.belief = grant, begin_belief(left_at, settings)
                    return
                if grant is not None:  # the answer came too late to trust it
                    await connection.release(grant)
                elif is_first:
                    logger.info("lease %s: another one leads, this process waits", self.lease.name)
                is_first = False
                self._on_waiting()
                await connection.wait_for_change(settings.poll_every)
            except LeaseUnavailable as error:
                self._warn(f"the provider does not answer: {error}")
                self._on_waiting()
                await self.clock.sleep(settings.retry_every)

    async def _keep(self, connection: LeaseConnection) -> None:
        assert self.grant is not None
        signals = asyncio.get_running_loop().create_task(connection.wait_for_signal(self.grant))
        is_answered = True
        try:
            while self.end is None:
                signals = await self._wait_for_renewal(connection, signals, is_answered=is_answered)
                if self.end is None:
                    is_answered = await self._renew(connection)
        finally:
            await cancel_all(signals)

    async def _wait_for_renewal(
        self, connection: LeaseConnection, signals: "asyncio.Task[LeaseSignal]", *, is_answered: bool
    ) -> "asyncio.Task[LeaseSignal]":
        """Wait until the next renewal is due, or the provider says something. Returns the task that waits for the next signal."""
        assert self.belief is not None and self.grant is not None
        seconds = compute_next_renewal(self.belief, self.settings, self.clock.monotonic(), is_answered=is_answered)
        pause = asyncio.get_running_loop().create_task(self.clock.sleep(seconds))
        try:
            await asyncio.wait((pause, signals), return_when=asyncio.FIRST_COMPLETED)
        finally:
            await cancel_all(pause)
        if not signals.done():
            return signals
        if signals.result() is LeaseSignal.LOST:
            self.end = LeadershipEnd.DISCONNECTED
            return signals
        self.belief = suspend(self.belief)
        return asyncio.get_running_loop().create_task(connection.wait_for_signal(self.grant))

    async def _renew(self, connection: LeaseConnection) -> bool:
        """Renew once, or end the term. Returns True if the renewal got an answer."""
        assert self.belief is not None and self.grant is not None
        left_at = self.clock.monotonic()
        if has_ended(self.belief, left_at):
            self.end = LeadershipEnd.HUNG if self._is_hung(left_at) else LeadershipEnd.UNRENEWED
            return False
        if self._is_hung(left_at):
            return False  # without a renewal its trust ends soon, and another contender takes over
        try:
            async with asyncio.timeout(self._choose_timeout(left_at)):
                is_renewed = await connection.renew(self.grant, self.settings.duration)
        except (LeaseUnavailable, TimeoutError) as error:
            self._warn(f"a renewal got no answer: {error or 'it took too long'}")
            return False
        if is_renewed:
            self.belief = begin_belief(left_at, self.settings)
        else:
            self.end = LeadershipEnd.REFUSED
        return True

    def _choose_timeout(self, now: float) -> float | None:
        """Seconds that one renewal may take: what is left of the trust, at most a third of the duration."""
        assert self.belief is not None
        if self.settings.duration is None:
            return None
        return max(0.0, min(self.settings.duration / 3, self.belief.trusted_until - now))

    def _is_hung(self, now: float) -> bool:
        return is_hung(self.settings, self.progress_at, now)

    def _warn(self, trouble: str) -> None:
        self._trouble.tell(trouble.partition(":")[0], f"lease {self.lease.name}: {trouble}")

    async def _leave(self, connection: LeaseConnection) -> None:
        """Give the lease back, or leave the queue; then close.

        A lease that could not be renewed is left alone for its margin: the work may still be about to stop, and to close the
        connection gives some leases away immediately. Work that has stopped cancels this wait.
        """
        try:
            if self.end in (LeadershipEnd.UNRENEWED, LeadershipEnd.HUNG) and self.belief is not None:
                await self.clock.sleep(max(0.0, self._compute_lapse() - self.clock.monotonic()))
            async with asyncio.timeout(RELEASE_SECONDS_MAX):
                if self.grant is not None and self.end is LeadershipEnd.RELEASED:
                    await connection.release(self.grant)
                else:
                    await connection.withdraw(self.holder)
        except (ArrieroError, TimeoutError) as error:
            logger.warning("lease %s could not be given back, it lapses by itself: %s", self.lease.name, error)
        finally:
            await finish(connection.close())

    def _compute_lapse(self) -> float:
        """Compute the latest lapse of the lease that its holder knows of, on the process's clock."""
        assert self.belief is not None
        return self.belief.renewed_at + (self.settings.duration or 0.0)
