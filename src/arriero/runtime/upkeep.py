"""Periodic cleanup of a store by the leader: it removes statuses that nobody acknowledged for too long.

It also closes breakers whose ramp is over, removes calls of rates that no longer count and rows of processes, leases and
breakers that nothing refers to, and folds old metrics of Agents into their sums. It finishes the work of a
submitter that died: it releases the tasks of an opened ledger and removes those of a refused one.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable

from ..core.breaker import REMEMBERED_SECONDS
from ..core.purging import KEPT_SECONDS
from ..errors import StoreError, UnreadableRow
from ..model import Instant, LedgerRow, LedgerState, later
from ..model.answers import Applied
from ..model.commands import NoteChildEnd
from ..store.contract import FOLDED_AT_ONCE, OBSOLETE_AT_ONCE
from ..store.state_store import StateStore
from ..system.loops import Loop, LoopGuard
from .ports import Ports

logger = logging.getLogger("arriero")

PASS_SECONDS = 60.0
LEDGER_SECONDS = 1.0
WORKFLOW_SECONDS = 1.0
CHILD_SECONDS = 5.0  # until the parent of a child that has ended is woken from here, where nobody else did
CHILDREN_AGAIN_SECONDS = (
    60.0  # ends of children are looked at again so long: a commit may be seen later than its instant
)
AGAIN_SECONDS = (
    10.0  # after a duty failed: a table that an operator keeps locked must not cost the other duties their time
)
BREAKER_SECONDS = 1.0  # until a service that is healthy again, and gets no calls, counts as well
LOOK_SECONDS = 0.25  # between looks whether something is due
UNREADABLE_SECONDS = (
    5.0  # between looks at what could not be read: an operator who fixes it soon sees that it continues
)
LEDGERS = 20  # that one pass continues with
BATCH = 500  # statuses dropped, or tasks of a ledger let go, in one transaction
ACTOR = "upkeep"


class Upkeep:
    """Cleans up a store from time to time.

    Args:
        replies_keep_seconds: how long a status waits for its reader.
    """

    def __init__(self, *, store: StateStore, ports: Ports, replies_keep_seconds: float) -> None:
        self._store = store
        self._ports = ports
        self._keep_seconds = replies_keep_seconds
        self._never = asyncio.Event()
        self._children_since = Instant(0)  # ends of children before were looked at
        self.done: Counter[str] = Counter()  # what was done since the start, by its kind
        # What is to be done, and when it is due: on the monotonic clock.
        self._due: dict[Callable[[], Awaitable[float]], float] = {
            self._go_on_with_ledgers: 0.0,
            self._look_at_convoys: 0.0,
            self._let_waiting_begin: 0.0,
            self._wake_parents: 0.0,
            self._drop_statuses: 0.0,
            self._look_at_unreadable: 0.0,
            self._close_breakers: 0.0,
            self._fold_agent_counts: 0.0,
            self._remove_old_rates: 0.0,
            self._repair_waiting_keys: 0.0,
            self._remove_obsolete_rows: 0.0,
        }
        self._guards = {
            duty: LoopGuard(Loop.UPKEEP, ports.clock.monotonic, unanswered="the store's upkeep could not be done: %s")
            for duty in self._due
        }

    async def run(self, leads: Callable[[], bool]) -> None:
        """Run until cancelled, in the passes in which ``leads`` returns True."""
        while True:
            if leads():
                await self.tick()
            await self._ports.clock.idle(self._never, LOOK_SECONDS)

    async def tick(self) -> None:
        """Do each duty that is due, at most a batch of it. A duty that fails does not stop the others."""
        now = self._ports.clock.monotonic()
        for duty in [duty for duty, due in self._due.items() if due <= now]:
            self._due[duty] = now + AGAIN_SECONDS
            with self._guards[duty]:
                self._due[duty] = now + await duty()

    async def finish(self) -> bool:
        """Do each duty until nothing of it is left. Returns False if one failed; it was logged."""
        await self.tick()
        while any(due <= self._ports.clock.monotonic() for due in self._due.values()):
            await self.tick()
        return not any(guard.failed for guard in self._guards.values())

    async def _look_at_convoys(self) -> float:
        if count := await self._store.look_at_forgotten():
            self.done["convoys"] += count
            logger.warning(
                "%d convoys were blocked: a process of an older release ended their tasks; replace it", count
            )
        return PASS_SECONDS

    async def _let_waiting_begin(self) -> float:
        """Let the tasks begin that waited for workflows which were resumed, where the operator's process did not come to it."""
        left = False
        for pause in await self._store.list_workflow_pauses():
            if not pause.is_paused:
                left |= await self._store.let_waiting_begin(pause.app, pause.workflow, BATCH, ACTOR)
        return 0.0 if left else WORKFLOW_SECONDS

    async def _wake_parents(self) -> float:
        """Wake tasks whose children have ended where the process died that was about to wake them."""
        until = later(self._store.now(), -CHILD_SECONDS)
        ended = await self._store.find_unnoticed_children(self._children_since, until, BATCH)
        notes = [NoteChildEnd(actor=ACTOR, step_no=step_no) for step_no, _ in ended]
        noted = await self._store.apply(notes) if notes else []
        woken = sum(isinstance(answer, Applied) for answer in noted)
        self.done["parents"] += woken
        if len(ended) == BATCH:
            if not woken:  # all of them are recorded: it continues behind them
                self._children_since = Instant(ended[-1][1] + 1)
            return 0.0
        self._children_since = max(self._children_since, later(until, -CHILDREN_AGAIN_SECONDS))
        return CHILD_SECONDS

    async def _look_at_unreadable(self) -> float:
        if count := await self._store.look_at_unreadable():
            self.done["readable"] += count
            logger.info("%d tasks that could not be read can be read again", count)
        return UNREADABLE_SECONDS

    async def _close_breakers(self) -> float:
        await self._store.close_recovered_breakers(ACTOR)
        return BREAKER_SECONDS

    async def _remove_old_rates(self) -> float:
        await self._store.remove_old_rates()
        return PASS_SECONDS

    async def _repair_waiting_keys(self) -> float:
        if count := await self._store.repair_waiting_keys():
            self.done["keys"] += count
            logger.warning(
                "requests waited under %d keys of limits whose rows were missing; they are kept again", count
            )
        return PASS_SECONDS

    async def _remove_obsolete_rows(self) -> float:
        now = self._store.now()
        before, breakers_before = later(now, -KEPT_SECONDS), later(now, -REMEMBERED_SECONDS)
        removed = await self._store.remove_obsolete_rows(before, breakers_before, OBSOLETE_AT_ONCE)
        self.done["obsolete"] += removed.total
        return PASS_SECONDS if max(removed) < OBSOLETE_AT_ONCE else 0.0

    async def _fold_agent_counts(self) -> float:
        folded = await self._store.fold_agent_counts()
        self.done["folded"] += folded
        return PASS_SECONDS if folded < FOLDED_AT_ONCE else 0.0

    async def _drop_statuses(self) -> float:
        dropped = await self._store.drop_statuses(later(self._store.now(), -self._keep_seconds), BATCH)
        if dropped:
            self.done["statuses"] += dropped
            logger.warning("%d statuses that nobody acknowledged were dropped from their reply queues", dropped)
        return PASS_SECONDS if dropped < BATCH else 0.0  # else more is waiting, for the next pass

    async def _go_on_with_ledgers(self) -> float:
        """Continue with unfinished ledgers. One that cannot continue now does not block the others."""
        found = await self._store.list_ledgers((LedgerState.OPENED, LedgerState.DISCARDING), limit=LEDGERS)
        before = [ledger for ledger in found if ledger.state in tuple(LedgerState)]  # the others cannot be read
        done = False
        for ledger in before:
            try:
                after = await self._go_on_with(ledger)
            except (StoreError, UnreadableRow) as error:
                logger.info("ledger %r cannot continue just now: %s", ledger.ledger_id, error)
                continue
            self.done["ledgers"] += after != ledger
            done = done or after != ledger
        return 0.0 if done else LEDGER_SECONDS

    async def _go_on_with(self, ledger: LedgerRow) -> LedgerRow | None:
        if not ledger.is_open:
            return await self._store.discard_ledger(ledger.ledger_no, BATCH, ACTOR, "refused")
        after = await self._store.let_go(ledger.ledger_no, BATCH, ACTOR)
        return ledger if after is None else after  # another process is at it, or at its next key
