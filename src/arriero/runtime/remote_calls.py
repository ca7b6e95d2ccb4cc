"""Counts the calls of attempts that programs carry out, each once, whichever process gets the report."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from ..answers import Dispatch
from ..core.attempts import has_expired, was_found_expired
from ..declare.attempt import Attempt
from ..declare.steps import Step
from ..errors import InvalidInput, StoreError
from ..events import read_events_to_show
from ..model import StepRow, UndoContext, read_undo_context, seconds_between
from .attempt_time import AttemptTime
from .process_context import ProcessContext
from .report_verdicts import APPLIED, LATE, AttemptIdentity, ReportVerdicts
from .reported_outcomes import ReportedResult


class RemoteAttempt:
    """An attempt that waits for its report.

    Args:
        attempt: its first argument, of a compensation the Undo.
        task: in which it runs; cancelled, it ends without a report.
    """

    def __init__(
        self,
        dispatch: Dispatch,
        definition: Step[Any, Any],
        attempt: Attempt,
        time: AttemptTime,
        task: "asyncio.Task[Any]",
    ) -> None:
        self.dispatch = dispatch
        self.definition = definition
        self.attempt = attempt
        self.time = time
        self.task = task
        self.outcome: asyncio.Future[ReportedResult] = task.get_loop().create_future()
        self.is_delivered = False
        self.is_handed_over = False  # its program holds it, by the store
        self.is_leaving = False  # it is being released

    def read_undo(self) -> UndoContext | None:
        """Decode the facts about the undone step; None: this is no compensation."""
        undo = self.dispatch.step.undo
        return None if undo is None else read_undo_context(undo)

    @property
    def identity(self) -> AttemptIdentity:
        """Its step and fence."""
        return self.dispatch.step.step_no, self.dispatch.step.fence


class RemoteCalls:
    """Counts calls of delivered attempts. ``begin``: runs a coroutine under a name."""

    def __init__(
        self, context: ProcessContext, verdicts: ReportVerdicts, begin: Callable[[Coroutine[Any, Any, None], str], None]
    ) -> None:
        self._store = context.store
        self._clock = context.clock
        self._verdicts = verdicts
        self._begin = begin

    def count_call(self, remote_attempt: RemoteAttempt, end: str, count: Callable[[], None]) -> None:
        """Count the call of a delivered attempt that has ended, unless its report came by way of another process before.

        That process has counted the call. ``look`` may not have found yet that it was reported or extended.
        """
        verdict = self._verdicts.find(remote_attempt.identity)
        if verdict is not None:
            verdict.add_done_callback(lambda verdict: count() if verdict.result() in (APPLIED, LATE) else None)
        elif end == "expired":
            self._begin(self._count_unreported(remote_attempt, count), "arriero-expired")
        else:
            count()  # the service that was called has answered

    async def _count_unreported(self, remote_attempt: RemoteAttempt, count: Callable[[], None]) -> None:
        step_no, fence = remote_attempt.identity
        # Its time is over here a little before it is by the store's clock. Until then a report counts.
        # The clocks go at different rates, so one sleep may be too short.
        while (left := seconds_between(self._store.now(), remote_attempt.time.complete_by)) > 0:
            await self._clock.sleep(left)
        try:
            loaded = await self._store.find(remote_attempt.dispatch.task_id)
        except (StoreError, InvalidInput):
            return  # it is unknown, and no call may be counted twice
        step = None if loaded is None else loaded.find_step(step_no)
        if has_expired(step, fence, remote_attempt.time.complete_by) or await self._was_found_expired(step, fence):
            count()

    async def _was_found_expired(self, step: StepRow | None, fence: int) -> bool:
        """Ask the history how an attempt ended that is over: as expired, or by way of another process, which has counted it."""
        if step is None or step.fence <= fence:
            return False
        try:
            rows = [row async for row in self._store.history(step.task_no)]
        except StoreError:
            return False
        return was_found_expired((event for row in rows for event in read_events_to_show(row)), step.ordinal, fence)
