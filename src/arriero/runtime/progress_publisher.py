"""Publishes the values of a running attempt: they are merged, so that at most one a second is written."""

import asyncio

from ..core.progress import STATUS_SECONDS
from ..errors import StoreError, UnreadableRow
from ..model import Instant, StepRow
from ..model.commands import PublishProgress
from ..model.progress import Published
from .ports import Timer
from .process_context import ProcessContext


class ProgressPublisher:
    """Writes the latest value of one attempt, at most one a second. One command is in transit at a time.

    A command whose answer is lost is sent again; the store sees by ``at`` that it has a newer value. Once the attempt is over it
    refuses all of them.
    """

    def __init__(self, context: ProcessContext, step: StepRow) -> None:
        self._context = context
        self._step = step
        self._latest: Published | None = None
        self._is_written = True  # the latest value is known to be in the store
        self._writing: asyncio.Task[None] | None = None
        self._timer: Timer | None = None
        self._next_at = 0.0  # monotonic: the next write begins no earlier
        self._is_closed = False

    def publish(self, text: str) -> None:
        """Publish a value soon. Called on the event loop."""
        if self._is_closed:
            return
        at = self._context.store.now()
        if self._latest is not None and at <= self._latest.at:
            at = Instant(self._latest.at + 1)
        self._latest, self._is_written = Published(self._step.ordinal, text, self._step.fence, at), False
        self._schedule()

    def close(self) -> Published | None:
        """Stop writing. Returns the latest value for the report of the attempt; None: it is written, or there is none."""
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        return None if self._is_written else self._latest

    def _schedule(self) -> None:
        if self._timer is not None or self._writing is not None:
            return
        wait = self._next_at - self._context.clock.monotonic()
        if wait > 0:
            self._timer = self._context.clock.call_later(wait, self._begin)
        else:
            self._begin()

    def _begin(self) -> None:
        self._timer = None
        if self._is_closed:
            return
        self._next_at = self._context.clock.monotonic() + STATUS_SECONDS
        self._writing = asyncio.get_running_loop().create_task(self._write(), name="arriero-publishing")

    async def _write(self) -> None:
        assert self._latest is not None
        sent = self._latest
        command = PublishProgress(
            actor=self._context.actor,
            process_no=self._context.process_no,
            step_no=self._step.step_no,
            fence=self._step.fence,
            value=sent.value,
            at=sent.at,
        )
        try:
            await self._context.ask(command)  # refused: the attempt is over, and nothing that it publishes counts
        except (StoreError, UnreadableRow):
            return  # the process ends, or an operator must correct the row: the value stays for the report
        finally:
            self._writing = None
        if self._latest is sent:
            self._is_written = True
        elif not self._is_closed:
            self._schedule()
