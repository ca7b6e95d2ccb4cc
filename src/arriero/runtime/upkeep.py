"""What a store must be rid of by itself: statuses that nobody acknowledged for too long. Run by whoever leads.

And what a submitter that died left half done: tasks of an opened ledger that are still to be let go, and those of a refused
one that are still to be removed.
"""

import logging

from ..errors import StoreError
from ..model import LedgerRow, LedgerState, later
from ..store.base import StateStore
from .ports import Ports

logger = logging.getLogger("arriero")

PASS_SECONDS = 60.0
LEDGER_SECONDS = 1.0
LEDGERS = 20  # that one pass goes on with
BATCH = 500  # statuses dropped, or tasks of a ledger let go, in one transaction
ACTOR = "upkeep"


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
        self._ledgers_at = 0.0
        self._convoys_at = 0.0

    async def tick(self) -> None:
        """What is due of it, at most a batch of each at a time. Raises StoreError."""
        now = self._ports.clock.monotonic()
        if now >= self._ledgers_at and not await self._go_on_with_ledgers():
            self._ledgers_at = now + LEDGER_SECONDS
        if now >= self._convoys_at:
            self._convoys_at = now + PASS_SECONDS
            if count := await self._store.look_at_forgotten():
                logger.warning(
                    "%d convoys stood still: a process of an older release ended their tasks; replace it", count
                )
        if now >= self._next_at and await self._drop_statuses() < BATCH:  # else more is waiting, for the next pass
            self._next_at = now + PASS_SECONDS

    async def _drop_statuses(self) -> int:
        dropped = await self._store.drop_statuses(later(self._store.now(), -self._keep_seconds), BATCH)
        if dropped:
            logger.warning("%d statuses that nobody acknowledged were dropped from their reply queues", dropped)
        return dropped

    async def _go_on_with_ledgers(self) -> bool:
        """Whether something of any ledger was done. One that cannot go on just now keeps no other waiting."""
        before = await self._store.list_ledgers((LedgerState.OPENED, LedgerState.DISCARDING), limit=LEDGERS)
        done = False
        for ledger in before:
            try:
                after = await self._go_on_with(ledger)
            except StoreError as error:
                logger.info("ledger %r cannot go on just now: %s", ledger.ledger_id, error)
                continue
            done = done or after != ledger
        return done

    async def _go_on_with(self, ledger: LedgerRow) -> LedgerRow | None:
        if not ledger.is_open:
            return await self._store.discard_ledger(ledger.ledger_no, BATCH, ACTOR, "refused")
        after = await self._store.let_go(ledger.ledger_no, BATCH, ACTOR)
        return ledger if after is None else after  # somebody else is at it, or at its next key
