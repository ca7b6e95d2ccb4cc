"""Writes what was counted of the calls of this process's Agents into the store, in coarse steps.

What was counted since the last write is lost if the process dies. Nothing that any work depends on is decided by it.
"""

import asyncio

from ..loops import Loop, LoopGuard
from ..store.state_store import StateStore
from .call_monitor import CallCounter
from .ports import ProcessClock

WRITE_SECONDS = 10.0  # between two writes: so much is lost if the process dies


class AgentMetricsWriter:
    """Writes what the counter has, at most once in ``WRITE_SECONDS``, and nothing if no call has ended.

    A write that failed is repeated with the next one.
    """

    def __init__(self, store: StateStore, clock: ProcessClock, counter: CallCounter) -> None:
        self._store = store
        self._clock = clock
        self._counter = counter
        self._never = asyncio.Event()
        self._guard = LoopGuard(
            Loop.METRICS, clock.monotonic, unanswered="the metrics of Agents could not be written yet: %s"
        )

    async def run(self) -> None:
        """Run until cancelled."""
        due_at = self._clock.monotonic() + WRITE_SECONDS
        while True:
            await self._clock.idle(self._never, WRITE_SECONDS)  # need not be waited out
            if self._counter.has_unwritten and self._clock.monotonic() >= due_at:
                due_at = self._clock.monotonic() + WRITE_SECONDS
                await self.write()

    async def write(self) -> None:
        """Write what the store may lack. What fails is logged and disturbs nobody."""
        with self._guard:
            rows = self._counter.list_unwritten(self._store.now())
            if rows:
                await self._store.put_agent_counts(rows)
                self._counter.note_written(rows)
