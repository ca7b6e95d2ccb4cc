"""The ends of workflow code: a value, or a failure and its meaning for the task."""

from collections.abc import Iterable
from typing import Any

import msgspec

from ..errors import Permanent, StepFailed
from ..model import StepKind, StepRow
from ..model.failures import TaskFailure, read_step_failure
from ..payloads.codec import error_text, recordable_text, step_error_fields
from ..system.traceback_capture import capture_traceback
from ..text.format import find_raising_frame

Identity = tuple[StepKind, str, str]  # of a step in its task: kind, name and key
CAUSES_MAX = 100  # causes of causes that are looked at; they may go in a circle


def format_identity(identity: Identity) -> str:
    """Name a step for those who read why code and record disagree."""
    kind, name, key = identity
    if kind is StepKind.TIMER:
        return "a sleep"
    return name if key == "#1" else f"{name}[{key}]"


class Returned(msgspec.Struct, frozen=True):
    """The code returned this value, or raised ContinueAs: ``continues`` is the call of the next run then."""

    value: Any
    continues: Any = None


class Raised(msgspec.Struct, frozen=True):
    """The code left by a failure. ``steps``: the failed steps it left by, more than one in an ExceptionGroup.

    ``behind``: failed steps that a refusal of the workflow was raised from.
    """

    failure: TaskFailure
    steps: tuple[Identity, ...] = ()
    behind: tuple[Identity, ...] = ()


def build_step_exception(step: StepRow) -> StepFailed:
    """Build the exception that workflow code sees for a step that failed."""
    assert step.failure is not None
    failure = read_step_failure(step.failure)
    error = StepFailed(
        step.name,
        code=failure.code,
        message=failure.message,
        details=failure.details,
        attempts=step.attempt,
        cause=failure.cause,
        public=failure.public,
    )
    error.identity = (step.kind, step.name, step.key)  # type: ignore[attr-defined]  # for the policy of just this step
    error.trace = failure.trace  # type: ignore[attr-defined]  # where in the step's code it failed
    return error


def build_bug_failure(error: BaseException, *, inside: BaseException | None = None) -> TaskFailure:
    """Build the failure of a bug. ``inside``: the group that left the code; it has the line if the error was never raised."""
    trace = capture_traceback(error)
    if inside is not None and find_raising_frame(trace) is None:
        trace = capture_traceback(inside)
    return TaskFailure("bug", error_text(error), code="bug", trace=trace)


def judge_error(error: BaseException) -> Raised:
    """Leave a failed step or a refusal to the policy; any other exception is a bug, and a bug undoes nothing."""
    try:
        return _judge_leaves(error, list(_list_leaves(error)))
    except Exception:  # an exception of the user's that cannot even be looked at
        return Raised(build_bug_failure(error))


def _judge_leaves(error: BaseException, leaves: list[BaseException]) -> Raised:
    first = leaves[0] if leaves else error
    if not leaves or not all(isinstance(leaf, StepFailed | Permanent) for leaf in leaves):
        culprit = next((leaf for leaf in leaves if not isinstance(leaf, StepFailed | Permanent)), error)
        return Raised(build_bug_failure(culprit, inside=error))
    identities = tuple(leaf.identity for leaf in leaves if hasattr(leaf, "identity"))
    if isinstance(first, StepFailed):
        reason = recordable_text(first.message or first.code or first.cause)
        step, code = recordable_text(first.step), recordable_text(first.code)
        trace, public = getattr(first, "trace", ()), recordable_text(first.public)
        return Raised(TaskFailure("step", reason, step, code, trace=trace, public=public), identities)
    assert isinstance(first, Permanent)
    fields = step_error_fields(first)
    behind = tuple(identity for leaf in leaves for identity in _find_raised_from(leaf))
    trace = capture_traceback(first)
    failure = TaskFailure("refused", fields.message, "", fields.code, trace=trace, public=fields.public)
    return Raised(failure, identities, behind)


def _find_raised_from(error: BaseException) -> Iterable[Identity]:
    """List the failed steps that were being handled when the error was raised."""
    for _ in range(CAUSES_MAX):
        before = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
        if before is None:
            return
        if hasattr(before, "identity"):
            yield before.identity
        error = before


def _list_leaves(error: BaseException) -> Iterable[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        for inner in error.exceptions:
            yield from _list_leaves(inner)
    else:
        yield error
