"""One call of a step's function in a child process, as its attempt waits for it."""

import sys
from collections.abc import Mapping
from typing import Any

import msgspec

from ..declare.callbacks import CallbackAccess
from ..declare.steps import Step
from ..errors import AttemptOver, Permanent, Transient
from ..model import StepRow
from ..model.failures import StepFailure
from .attempt_time import AttemptTime
from .child_messages import (
    AnswerToChild,
    AskedByChild,
    ChildCall,
    ChildFailed,
    ChildSucceeded,
    ChildUnrecordable,
    PublishedByChild,
    encode_message,
    read_from_child,
)
from .ports import ChildProcess, Ports


class UnknownInChild(Exception):
    """The function raised in its child process, or that ended by itself: nobody knows what happened. ``failure``: why."""

    def __init__(self, failure: StepFailure) -> None:
        super().__init__(failure.message)
        self.failure = failure


class PermanentInChild(Permanent):
    """The function raised Permanent in its child process."""

    def __init__(self, failure: StepFailure) -> None:
        super().__init__(failure.message, code=failure.code, details=failure.details)
        self.failure = failure


class TransientInChild(Transient):
    """The function raised Transient in its child process, or was not called."""

    def __init__(self, failure: StepFailure, retry_after: float | None = None) -> None:
        super().__init__(failure.message, code=failure.code, details=failure.details, retry_after=retry_after)
        self.failure = failure


RaisedInChild = UnknownInChild | PermanentInChild | TransientInChild


async def call_in_child(
    ports: Ports,
    definition: Step[Any, Any],
    step: StepRow,
    task_id: str,
    time: AttemptTime,
    accesses: Mapping[str, CallbackAccess],
) -> ChildSucceeded | ChildUnrecordable:
    """Call a step's function in a child process. Cancelled, it kills the child immediately.

    Raises: RaisedInChild.
    """
    function = definition.function
    call = ChildCall(
        path=tuple(sys.path),
        module=function.__module__,
        function=function.__qualname__,
        what=definition.signature.what,
        arguments=step.arguments,
        task_id=task_id,
        step=step.label,
        number=step.attempt,
        idempotency_key=step.idempotency_key,
        complete_by=time.complete_by,
        deadline=time.deadline,
        checkpoint=time.checkpoint,
        trace_headers=dict(time.trace_headers),
        accesses=accesses,
    )
    try:
        child = await ports.start_child()
    except OSError as error:
        raise TransientInChild(
            StepFailure("transient", f"no child process could be started: {error}", "no_child")
        ) from error
    try:
        await child.send(encode_message(call))
        return await _follow(child, time)
    finally:
        await child.kill()


async def _follow(child: ChildProcess, time: AttemptTime) -> ChildSucceeded | ChildUnrecordable:
    while line := await child.read_line():
        try:
            message = read_from_child(line)
        except msgspec.MsgspecError:
            break
        match message:
            case AskedByChild():
                await child.send(encode_message(await _answer(message, time)))
            case PublishedByChild():
                time.publish(message.value)
            case ChildFailed():
                raise _build_error(message)
            case ChildSucceeded() | ChildUnrecordable():
                return message
    died = await child.wait()
    how = f"by signal {-died}" if died < 0 else f"with exit code {died}"
    raise UnknownInChild(StepFailure("unknown", f"its child process ended {how} before it had answered", "child_died"))


async def _answer(asked: AskedByChild, time: AttemptTime) -> AnswerToChild:
    over = ""
    try:
        if asked.seconds is not None:
            await time.extend(asked.seconds)
        if asked.checkpoint is not None:
            await time.save_checkpoint(asked.checkpoint)
    except AttemptOver as error:
        over = str(error)
    return AnswerToChild(time.complete_by, time.deadline, time.checkpoint, over)


def _build_error(failed: ChildFailed) -> RaisedInChild:
    failure = StepFailure(failed.cause, failed.message, failed.code, failed.details, failed.trace, failed.public)
    if failed.cause == "permanent":
        return PermanentInChild(failure)
    return TransientInChild(failure, failed.retry_after) if failed.cause == "transient" else UnknownInChild(failure)
