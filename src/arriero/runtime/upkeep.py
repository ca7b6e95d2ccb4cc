"""What a store must be rid of by itself: statuses that nobody acknowledged for too long. Run by whoever leads."""

import logging

from ..model import later
from ..store.base import StateStore
from .ports import Ports

logger = logging.getLogger("arriero")

PASS_SECONDS = 60.0
BATCH = 500  # statuses dropped in one transaction


class Upkeep:
    """See the module.

    Args:
        replies_keep_seconds: how long a status waits for its reader.
    """

    def __init__(self, *, store: StateStore, ports: Ports, replies_keep_seconds: float) -> None:
        self._store = store
        self._ports = ports
        self._keep_seconds = replies_keep_seconds
        self._next_at = 0.0

    async def tick(self) -> None:
        """Once a minute, drop what is too old, at most a batch at a time. Raises StoreError."""
        now = self._ports.clock.monotonic()
        if now < self._next_at:
            return
        dropped = await self._store.drop_statuses(later(self._store.now(), -self._keep_seconds), BATCH)
        if dropped:
            logger.warning("%d statuses that nobody acknowledged were dropped from their reply queues", dropped)
        if dropped < BATCH:  # else more is waiting, for the next pass of the leader
            self._next_at = now + PASS_SECONDS
