"""Contenders for one lease whose requests are cut off at random: nobody leads at the same time as another, and terms grow."""

import asyncio
import random
import time
from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple

from arriero import LeaseUnavailable
from arriero.leases import Lease, LeaseConnection, LeaseGrant

CAMPAIGN_SECONDS_MAX = 120.0  # a wait, not a measure
TRUST_SHARE = 0.8  # of the duration
CUT_SECONDS = (0.002, 0.005, 0.01, 0.03, 5.0, 5.0, 5.0)  # until a request is cut off: mostly never


class Reign(NamedTuple):
    """From when to when somebody led, on the machine's monotonic clock, and under which term."""

    began_at: float
    ended_at: float
    term: int


class Campaign:
    """Contenders that lead until so many grants were given.

    Args:
        share_abandoned: of the grants, which are not given back: the lease lapses.
    """

    def __init__(self, duration: float, grants: int, share_abandoned: float, seed: int) -> None:
        self.reigns: list[Reign] = []
        self.cut = 0  # requests
        self._duration = duration
        self._grants = grants
        self._share_abandoned = share_abandoned
        self._random = random.Random(seed)

    async def run(self, make_lease: Callable[[], Lease], contenders: int) -> None:
        """Let them contend. Fails if two led at once, or a term did not grow."""
        async with asyncio.timeout(CAMPAIGN_SECONDS_MAX):
            await asyncio.gather(*(self._contend(make_lease(), f"contender-{number}") for number in range(contenders)))
        self.reigns.sort()
        for earlier, later in zip(self.reigns, self.reigns[1:], strict=False):
            assert later.began_at >= earlier.ended_at, (earlier, later)
            assert later.term > earlier.term, (earlier, later)

    async def _contend(self, lease: Lease, name: str) -> None:
        async with lease.connected() as connection:
            number = 0
            while len(self.reigns) < self._grants:
                number += 1
                await self._try_to_lead(connection, f"{name}-{number}")

    async def _try_to_lead(self, connection: LeaseConnection, holder: str) -> None:
        grant = None
        while grant is None and len(self.reigns) < self._grants and self._random.random() < 0.95:
            left_at = time.monotonic()
            with suppress(TimeoutError, LeaseUnavailable):
                async with self._cut_off():
                    grant = await connection.acquire(holder, self._duration)
            await self._pause()
        if grant is None:
            with suppress(LeaseUnavailable):
                await connection.withdraw(holder)
            return
        began_at, trusted_until = time.monotonic(), left_at + self._duration * TRUST_SHARE
        trusted_until = await self._lead(connection, grant, trusted_until)
        self.reigns.append(Reign(began_at, min(time.monotonic(), trusted_until), grant.term))
        if self._random.random() >= self._share_abandoned:
            with suppress(LeaseUnavailable):
                await connection.release(grant)

    async def _lead(self, connection: LeaseConnection, grant: LeaseGrant, trusted_until: float) -> float:
        """Renew some times. Returns until when the lease could be trusted."""
        for _ in range(self._random.randrange(4)):
            await self._pause()
            left_at = time.monotonic()
            with suppress(TimeoutError, LeaseUnavailable):
                async with self._cut_off():
                    if not await connection.renew(grant, self._duration):
                        return min(trusted_until, left_at)
                    trusted_until = left_at + self._duration * TRUST_SHARE
        return trusted_until

    def _cut_off(self) -> asyncio.Timeout:
        seconds = self._random.choice(CUT_SECONDS)
        self.cut += seconds < 1
        return asyncio.timeout(seconds)

    async def _pause(self) -> None:
        await asyncio.sleep(self._random.random() * 0.02)  # so that requests meet at every step
