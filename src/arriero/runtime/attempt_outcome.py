"""Outcomes of attempts: what a step's function returned or raised, as the store records it; and the first argument of an undo."""

from typing import Any

from ..codec import error_text, recordable_text, step_error_fields
from ..commands import GaveUp, Outcome, Succeeded
from ..declare.attempt import Undo
from ..declare.steps import Step
from ..errors import Cause, InvalidInput, Permanent, StepError, Transient
from ..failures import StepFailure
from ..model import StepKind, StepRow, read_undo_context
from ..traceback_capture import capture_traceback
from .attempt_time import AttemptTime
from .child_call import RaisedInChild
from .child_messages import ChildSucceeded, ChildUnrecordable
from .reported_outcomes import ReportedFailure, ReportedResult


def encode_success(step: StepRow, definition: Step[Any, Any] | None, value: Any) -> Outcome:
    """Build the outcome of an attempt whose function returned. ``definition``: of the step; it has the type of the result."""
    if step.kind is StepKind.COMPENSATION:
        return Succeeded("null")
    if isinstance(value, ChildSucceeded | ReportedResult):
        return Succeeded(value.result)
    if isinstance(value, ChildUnrecordable):
        failure = StepFailure("unknown", value.message, "unrecordable_result", trace=value.trace)
        return GaveUp(failure, True)
    assert definition is not None
    try:
        return Succeeded(definition.signature.encode_result(value))
    except InvalidInput as error:  # it happened, but what came of it cannot be kept, now or at another attempt
        text = recordable_text(str(error))
        return GaveUp(StepFailure("unknown", text, "unrecordable_result", trace=capture_traceback(error)), True)


def build_failure(error: BaseException) -> StepFailure:
    """Build the failure of a try from what the step's function raised."""
    if isinstance(error, RaisedInChild | ReportedFailure):
        return error.failure
    if not isinstance(error, StepError):
        return StepFailure("unknown", error_text(error), trace=capture_traceback(error))
    cause: Cause = (
        "permanent" if isinstance(error, Permanent) else "transient" if isinstance(error, Transient) else "unknown"
    )
    fields = step_error_fields(error)
    trace = capture_traceback(error)
    return StepFailure(cause, fields.message, fields.code, fields.details, trace, fields.public)


def build_undo(step: StepRow, definition: Step[Any, Any], given: tuple[str, str, int, str, AttemptTime]) -> Undo[Any]:
    """Build the first argument of a compensation. ``given``: what an Attempt is made of, too."""
    assert step.undo is not None
    context = read_undo_context(step.undo)
    result = None if context.result is None else definition.signature.result(context.result)
    return Undo(
        *given,
        outcome=context.outcome,
        forward_key=context.forward_key,
        result=result,
        forward_checkpoint=context.checkpoint,
    )
