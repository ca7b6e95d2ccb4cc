"""Requests as programs outside of Python get them, and the attempts and calls that wait here for their reports."""

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Literal

import msgspec

from ..core.attempts import find_latest_complete_by, has_expired, was_found_expired
from ..core.capabilities import Capability, seal_capability
from ..declare.attempt import Attempt, Undo
from ..declare.callbacks import CallbackAccess, give_accesses
from ..declare.steps import Step
from ..errors import InvalidInput, StoreError
from ..events import read_events_to_show
from ..model import StepRow, seconds_between
from ..model.answers import Dispatch
from ..model.moves import UndoContext, read_undo_context
from .attempt_time import AttemptTime
from .process_context import ProcessContext
from .report_verdicts import APPLIED, LATE, AttemptIdentity, ReportedResult, ReportVerdicts


class RemoteAttempt:
    """An attempt that waits for its report.

    Args:
        attempt: its first argument, of a compensation the Undo.
        task: in which it runs; cancelled, it ends without a report.
        accesses: to the callbacks among its arguments, by the labels of their waits.
    """

    def __init__(
        self,
        dispatch: Dispatch,
        definition: Step[Any, Any],
        attempt: Attempt,
        time: AttemptTime,
        task: "asyncio.Task[Any]",
        accesses: Mapping[str, CallbackAccess],
    ) -> None:
        self.dispatch = dispatch
        self.definition = definition
        self.attempt = attempt
        self.time = time
        self.task = task
        self.accesses = accesses
        self.outcome: asyncio.Future[ReportedResult] = task.get_loop().create_future()
        self.is_delivered = False
        self.is_handed_over = False  # its program holds it, by the store
        self.is_leaving = False  # it is being released

    def read_undo(self) -> UndoContext | None:
        """Decode the facts about the undone step; None: this is not a compensation."""
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


class RemoteRequest(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One attempt for a program to carry out.

    Args:
        step, key: the step's name, and the key that distinguishes several calls of it in one task.
        kind: ``compensation``: the step is to be undone.
        arguments: a JSON object, by the names of the step's parameters.
        attempt: 1 for the first one.
        idempotency_key: to be sent to the service, so that it does it once.
        complete_by: the deadline by the store's clock, as RFC 3339 in UTC. A later report does not count.
        remaining_ms: until then, as of now.
        headers: of HTTP, to be passed on to the service.
        checkpoint: what an earlier attempt kept last, as JSON.
        capability: to be given back with the report.
        outcome, forward_key, result, forward_checkpoint: of a compensation: ``completed`` or ``unknown``; the idempotency key
            of the step; its result as JSON; what its attempts kept last.
        callback: where to report, if arriero sends the request and knows where.
    """

    task: str
    step: str
    key: str
    kind: Literal["step", "compensation"]
    arguments: msgspec.Raw
    attempt: int
    idempotency_key: str
    complete_by: str
    remaining_ms: int
    headers: dict[str, str]
    capability: str
    checkpoint: msgspec.Raw | None = None
    outcome: Literal["completed", "unknown"] | None = None
    forward_key: str | None = None
    result: msgspec.Raw | None = None
    forward_checkpoint: msgspec.Raw | None = None
    callback: str | None = None


def build_capability(remote_attempt: RemoteAttempt, store_id: str, app: str) -> Capability:
    """Build the capability of an attempt until its deadline as it is now."""
    step = remote_attempt.dispatch.step
    return Capability(
        store_id=store_id,
        agent=step.agent,
        task_id=remote_attempt.dispatch.task_id,
        step_no=step.step_no,
        attempt=step.attempt,
        fence=step.fence,
        complete_by=remote_attempt.time.complete_by,
        latest=find_latest_complete_by(step),
        app=app,
    )


def build_request(remote_attempt: RemoteAttempt, store_id: str, secret: bytes, app: str) -> RemoteRequest:
    """Build the request of an attempt, as a process of an App gives it out."""
    step, attempt = remote_attempt.dispatch.step, remote_attempt.attempt
    arguments = _write_arguments(remote_attempt)
    undo = remote_attempt.read_undo()
    return RemoteRequest(
        task=remote_attempt.dispatch.task_id,
        step=step.name,
        key=step.key,
        kind="compensation" if isinstance(attempt, Undo) else "step",
        arguments=msgspec.Raw(arguments.encode()),
        attempt=step.attempt,
        idempotency_key=step.idempotency_key,
        complete_by=attempt.complete_by.isoformat(),
        remaining_ms=int(attempt.remaining * 1000),
        headers=dict(attempt.headers),
        capability=seal_capability(build_capability(remote_attempt, store_id, app), secret),
        checkpoint=_as_raw(remote_attempt.time.checkpoint),
        outcome=None if undo is None else undo.outcome,
        forward_key=None if undo is None else undo.forward_key,
        result=None if undo is None else _as_raw(undo.result),
        forward_checkpoint=None if undo is None else _as_raw(undo.checkpoint),
    )


def _write_arguments(remote_attempt: RemoteAttempt) -> str:
    """Write the arguments as a program outside of Python gets them: all of them, and callbacks with their URLs."""
    signature, recorded = remote_attempt.definition.signature, remote_attempt.dispatch.step.arguments
    with give_accesses(remote_attempt.accesses, hands_out=True):
        return signature.encode_arguments(signature.arguments_with_defaults(recorded))


def _as_raw(text: str | None) -> msgspec.Raw | None:
    return None if text is None else msgspec.Raw(text.encode())
