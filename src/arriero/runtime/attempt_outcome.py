"""Outcomes of attempts: what a step's function returned or raised, as the store records it; and the first argument of an undo."""

import contextlib
from collections.abc import Callable
from typing import Any

from ..core.supervision import READ_REMEDY, REFUSED_ARGUMENTS
from ..declare.attempt import Undo
from ..declare.steps import Step
from ..errors import Cause, InvalidInput, Permanent, StepError, Transient
from ..model import StepKind, StepRow
from ..model.failures import StepFailure
from ..model.moves import GaveUp, Outcome, Succeeded, read_undo_context
from ..payloads.codec import error_text, recordable_text, step_error_fields
from ..system.traceback_capture import capture_traceback
from .attempt_time import AttemptTime
from .child_call import RaisedInChild
from .child_messages import ChildSucceeded, ChildUnrecordable
from .report_verdicts import ReportedFailure, ReportedResult


class ThreadAnswer:
    """Calls a function once and keeps its result.

    The attempt's own wait is cancelled when its time is over; the thread continues, and its answer would be dropped with
    the future that nobody waits for.
    """

    def __init__(self, function: Callable[[], Any]) -> None:
        self._function = function
        self._is_given = False
        self._value: Any = None
        self._error: BaseException | None = None

    def call(self) -> Any:
        """Runs in the thread. Raises what the function raises."""
        try:
            self._value = self._function()
        except BaseException as error:
            self._error = error
            raise
        finally:
            self._is_given = True
        return self._value

    def is_given(self) -> bool:
        """Returns True if the function has ended; False also if it never began."""
        return self._is_given

    def value(self) -> Any:
        """Return the function's result, or raise what it raised. Only once it has ended."""
        if self._error is not None:
            raise self._error
        return self._value


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


def build_refusal(step: StepRow, definition: Step[Any, Any] | None, error: InvalidInput) -> StepFailure:
    """Build the failure of an attempt whose arguments cannot be read: the code is at fault, unless they name an unknown callback."""
    trace = capture_traceback(error)
    if definition is not None and definition.signature.takes_references and step.kind is StepKind.STEP:
        with contextlib.suppress(InvalidInput):
            definition.signature.arguments(step.arguments)  # without access to callbacks
            return StepFailure("permanent", recordable_text(str(error)), "unknown_callback", trace=trace)
    return StepFailure("permanent", recordable_text(f"{error}; {READ_REMEDY}"), REFUSED_ARGUMENTS, trace=trace)


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
