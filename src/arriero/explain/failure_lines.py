"""Log lines for failed attempts and broken code, each with a kind by which repeated lines are counted."""

import msgspec

from ..core.supervision import read_step_policy
from ..model import Instant, StepKind, StepRow, StepState, TaskRow, seconds_between
from ..model.failures import CapturedTraceback, StepFailure, TaskFailure
from ..model.instants import as_datetime
from ..model.moves import GaveUp, RetryAsked
from ..text.escaping import one_line
from ..text.format import (
    find_frame_to_show,
    format_duration,
    format_failure,
    format_instant,
    format_labelled_location,
    format_step,
    format_traceback,
)

MESSAGE_SHOWN_MAX = 300
DAY_SECONDS = 86_400
FAULTS_OF_CODE = ("bug", "replay", "unawaited")  # kinds of TaskFailure that only other code fixes

Kind = tuple[object, ...]


class FailureLine(msgspec.Struct, frozen=True):
    """A line for the log. Lines of one ``kind`` report the same code failing for the same reason.

    ``is_refusal``: the service refused permanently, as its step declares by Permanent: that is an answer and no trouble, unless
    an undo needs it.
    """

    kind: Kind
    says: str
    is_refusal: bool = False


def describe_failed_attempt(step: StepRow, outcome: RetryAsked | GaveUp, task: TaskRow, now: Instant) -> FailureLine:
    """The line of an attempt that failed, or of a request that nobody took.

    Args:
        step, task: as they stand once that is recorded.
        outcome: what was reported, or decided by the Supervisor.
        now: the store's clock.
    """
    failure = outcome.failure
    number = step.attempt - 1 if isinstance(outcome, RetryAsked) else step.attempt
    what = "no attempt began" if failure.code == "not_taken" else f"attempt {number} failed"
    place = format_labelled_location(failure.trace)
    why = f"{_shorten(format_failure(failure))}{f' ({place})' if place else ''}"
    says = f"{format_step(step)} of task {task.task_id}: {what}: {why}; {_describe_next(step, failure, now)}"
    kind = (*_kind_of(step), str(step.state), failure.cause, failure.code, *_kind_of_trace(failure.trace))
    is_refusal = failure.cause == "permanent" and step.kind is StepKind.STEP
    return FailureLine(kind, one_line(says), is_refusal)


def describe_lost_attempt(step: StepRow, task: TaskRow, lost_by: int | None, now: Instant) -> FailureLine:
    """The line of an attempt whose process was lost. ``lost_by``: that process; None: it lives and makes no progress."""
    who = "its process, which is stuck," if lost_by is None else f"process {lost_by}"
    next_one = _describe_next(step, None, now)
    says = (
        f"{format_step(step)} of task {task.task_id}: attempt {step.attempt} was lost with {who} and may have happened;"
        f" {next_one}"
    )
    return FailureLine((*_kind_of(step), str(step.state), "lost", lost_by), one_line(says))


def describe_held_task(task: TaskRow, failure: TaskFailure) -> FailureLine | None:
    """The lines of a task that is held because of its code, with the traceback; None: it is held for another reason."""
    if failure.kind not in FAULTS_OF_CODE:
        return None
    place = format_labelled_location(failure.trace)
    says = one_line(
        f"task {task.task_id} of {task.workflow} is held: {_shorten(failure.reason)}{'; ' * bool(place)}{place}"
    )
    traceback = [f"  {' ' * _indentation(line)}{one_line(line)}" for line in format_traceback(failure.trace)]
    kind = (task.workflow, failure.kind, failure.code, *_kind_of_trace(failure.trace))
    return FailureLine(kind, "\n".join([says, *traceback]))


def _kind_of(step: StepRow) -> Kind:
    return step.agent, str(step.kind), step.name


def _kind_of_trace(trace: CapturedTraceback) -> Kind:
    """Build the kind of an error from its type and line, not from its text, which names another order each time."""
    frame = find_frame_to_show(trace)
    return (trace[0].error if trace else "", "" if frame is None else f"{frame.file}:{frame.line}")


def _shorten(text: str) -> str:
    return text if len(text) <= MESSAGE_SHOWN_MAX else f"{text[:MESSAGE_SHOWN_MAX]}..."


def _indentation(line: str) -> int:
    return len(line) - len(line.lstrip())


def _describe_next(step: StepRow, failure: StepFailure | None, now: Instant) -> str:
    """Describe when it is tried again, or why it is not."""
    if step.state is StepState.PENDING:
        return _describe_retry(step, now)
    if step.state is StepState.PLANNED:
        return "it is set aside until its task is resubmitted"
    if step.state is StepState.FAILED and failure is not None and failure.cause != "permanent":
        supervision = read_step_policy(step).supervision
        if failure.code not in ("not_taken", "unrecordable_result"):
            return f"no attempt left of {supervision.attempts * supervision.rounds}"
    if step.state is StepState.WITHDRAWN:
        return "not tried again: its task is being undone or needs an operator"
    return "not tried again: the undo needs an operator" if step.kind is StepKind.COMPENSATION else "not tried again"


def _describe_retry(step: StepRow, now: Instant) -> str:
    due = step.not_before
    if due is None:
        return "again when its task is resumed"
    seconds = seconds_between(now, due)
    if seconds <= 0:
        return "retried immediately"
    at = f"{as_datetime(due):%H:%M:%S}Z" if seconds < DAY_SECONDS else format_instant(due)
    return f"again at {at} (in {format_duration(seconds)})"
