"""Builds what programs read as JSON from rows: instants become datetimes, payloads stay the JSON text that they are."""

import functools
from collections.abc import Callable
from datetime import datetime
from typing import Any, TypeVar

import msgspec

from ..model import Instant, StepRow
from ..model.failures import CapturedTraceback, TaskFailure, read_step_failure
from ..model.instants import as_datetime
from ..text.format import format_location

S = TypeVar("S", bound=msgspec.Struct)


def to_datetime(instant: Instant | None) -> datetime | None:
    """An instant for JSON."""
    return None if instant is None else as_datetime(instant)


def build_output(output_type: type[S], row: object, **computed: Any) -> S:
    """Build a value for programs from a row.

    Fields that are not ``computed`` are copied from the row's attributes of the same name: instants as datetimes,
    payloads as raw JSON, words as plain texts.
    """
    for name, convert in _list_converters(output_type).items():
        if name not in computed and hasattr(row, name):
            value = getattr(row, name)
            computed[name] = value if value is None or convert is None else convert(value)
    return output_type(**computed)


@functools.cache
def _list_converters(output_type: type[msgspec.Struct]) -> dict[str, Callable[[Any], Any] | None]:
    """Find the converter of each field of a type from the value of a row; None: the value stays the same."""
    return {field.name: _find_converter(field.type) for field in msgspec.structs.fields(output_type)}


def _find_converter(declared: Any) -> Callable[[Any], Any] | None:
    if declared in (datetime, datetime | None):
        return as_datetime
    if declared in (msgspec.Raw, msgspec.Raw | None, msgspec.Raw | msgspec.UnsetType | None):
        return lambda text: msgspec.Raw(text.encode())
    return str if declared is str else None


class FailureView(msgspec.Struct, frozen=True):
    """The failure of a task or a step.

    Args:
        kind: of a step's failure: ``permanent``, ``transient``, ``unknown`` or ``expired``. Of a task's: ``step`` a step
            failed, ``refused`` the workflow raised Permanent, ``limit`` its own time passed, ``bug``, ``replay``,
            ``unawaited``, ``lost``, ``in_doubt``, ``undo`` a compensation failed, ``person``, ``late``, ``gap``.
        message: in words.
        code: as the step or the workflow gave it; empty: it gave none.
        step: label of the step; empty: no single step.
        details: as a step's Permanent or Transient gave them, as plain JSON values.
        at: the line of code to fix or by which the failure was raised, as ``shop/orders.py:42, in fulfil: `...` ``;
            empty: no line of yours is known.
        trace: all lines that the exception passed; no values of variables.
    """

    kind: str
    message: str
    code: str = ""
    step: str = ""
    details: Any = None
    at: str = ""
    trace: CapturedTraceback = ()


def view_task_failure(failure: TaskFailure) -> FailureView:
    """Build the view of a task's failure."""
    return FailureView(
        failure.kind, failure.reason, failure.code, failure.step, None, format_location(failure.trace), failure.trace
    )


def view_step_failure(step: StepRow) -> FailureView:
    """Build the view of the failure of a step that has one."""
    assert step.failure is not None
    failure = read_step_failure(step.failure)
    at = format_location(failure.trace)
    return FailureView(failure.cause, failure.message, failure.code, step.label, failure.details, at, failure.trace)
