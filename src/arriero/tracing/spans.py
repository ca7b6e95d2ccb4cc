"""Which spans a command has ended: values in, values out.

A span is told by the process whose command ended the thing, once the command is written. The command's guard holds only once,
so no two processes tell the same span. Ids are computed from the rows, and instants are those that the store has recorded.
"""

from collections.abc import Callable

import msgspec
from msgspec.structs import replace

from ..answers import Applied, Dispatch
from ..commands import Advance, AnyCommand, Fired, GaveUp, Outcome, Recover, Report, Reported, RetryAsked, Succeeded
from ..core.supervision import compute_complete_within
from ..core.transitions import has_ended
from ..model import Instant, StepFailure, StepKind, StepRow, StepState, TaskFailure, TaskRow, TaskState, later
from ..trace_context import SpanIds, TraceContext, read_trace_context

AttributeValue = str | int | bool
_ENDED_STEPS = frozenset((StepState.COMPLETED, StepState.FAILED, StepState.WITHDRAWN))
_read_failure = msgspec.json.Decoder(StepFailure).decode
_read_task_failure = msgspec.json.Decoder(TaskFailure).decode
Links = tuple[tuple[int, int], ...]  # to other spans of tasks, as trace and span


class EndedSpan(msgspec.Struct, frozen=True, gc=False):
    """A span that has ended. ``parent_id`` 0: it is the root of its trace. ``error``: why it failed; None: it did not."""

    name: str
    span_id: int
    parent_id: int
    start: Instant
    end: Instant
    attributes: dict[str, AttributeValue]
    error: str | None = None
    links: Links = ()


class TaskTrace(msgspec.Struct, frozen=True, gc=False):
    """The trace of a task. ``parent``: the submitter's span; None: it was submitted without one."""

    trace_id: int
    parent: TraceContext | None

    @property
    def state(self) -> str:
        """What vendors add to it."""
        return "" if self.parent is None else self.parent.state


def find_task_trace(ids: SpanIds, task_id: str, kept: str | None) -> TaskTrace:
    """Find the trace of a task. ``kept``: the trace context in its row."""
    if (parent := read_trace_context(kept)) is None:
        return TaskTrace(ids.derive_trace(task_id), None)
    return TaskTrace(parent.trace_id, parent)


def find_attempt_span(ids: SpanIds, dispatch: Dispatch) -> int:
    """Find the span of an attempt. It is the same in whatever process the attempt ends."""
    return ids.derive_attempt(dispatch.step.step_no, dispatch.step.attempt)


def list_ended_spans(
    command: AnyCommand,
    answer: Applied,
    trace: TaskTrace,
    ids: SpanIds,
    now: Callable[[], Instant],
    take_begin: Callable[[tuple[int, int], None], Instant | None],
    links: Links = (),
) -> list[EndedSpan]:
    """List the spans that a command has ended: attempts, then steps, then the task.

    Args:
        now: the store's clock, after the command; asked where no row has the instant.
        take_begin: returns when an attempt began, by step and fence; None: this process does not know. Asked once.
        links: of the task, to spans of other tasks.
    """
    task, steps = answer.task, answer.steps
    found: list[EndedSpan] = []
    for ended in _list_ended_attempts(command, steps, now):
        began_at = take_begin((ended.step.step_no, ended.fence), None)
        found.append(_build_attempt(ended, task, trace, ids, began_at))
    for step in steps:
        if step.state in _ENDED_STEPS and step.kind is not StepKind.TIMER and step.finished_at is not None:
            found.append(_build_step(step, task, ids, step.finished_at))
    if task.ended_at is not None and has_ended(command, task):
        found.append(_build_task(task, trace, ids, task.ended_at, links))
    return found


class _EndedAttempt(msgspec.Struct, frozen=True, gc=False):
    """An attempt that ended, with its step's row as it stands now. ``tries`` None: nobody reported how many there were."""

    step: StepRow
    fence: int
    number: int
    outcome: Outcome
    at: Instant
    tries: int | None


def _list_ended_attempts(
    command: AnyCommand, steps: tuple[StepRow, ...], now: Callable[[], Instant]
) -> list[_EndedAttempt]:
    if isinstance(command, Recover):
        step = _find_row(steps, command.step_no)
        if step is None or command.starved:
            return []
        is_same = isinstance(command.outcome, GaveUp) and step.state is StepState.FAILED
        number, at = step.attempt if is_same else step.attempt - 1, step.finished_at or now()
        return [_EndedAttempt(step, command.fence, number, command.outcome, at, None)]
    reports: tuple[Reported | Fired, ...] = ()
    if isinstance(command, Advance):
        reports = command.delivered
    elif isinstance(command, Report):
        reports = (command.report,)
    return [
        _EndedAttempt(step, item.fence, item.attempt, item.outcome, item.delivered_at, item.tries)
        for item in reports
        if isinstance(item, Reported) and (step := _find_row(steps, item.step_no)) is not None
    ]


def _find_row(steps: tuple[StepRow, ...], step_no: int) -> StepRow | None:
    for step in steps:
        if step.step_no == step_no:
            return step
    return None


def _build_attempt(
    ended: _EndedAttempt, task: TaskRow, trace: TaskTrace, ids: SpanIds, began_at: Instant | None
) -> EndedSpan:
    step, number, outcome = ended.step, ended.number, ended.outcome
    attributes: dict[str, AttributeValue] = {
        "arriero.task.id": task.task_id,
        "arriero.step.name": step.label,
        "arriero.agent": step.agent,
        "arriero.attempt.number": number,
    }
    if ended.tries is not None:
        attributes["arriero.attempt.tries"] = ended.tries
    if began_at is None:  # it began in another process: it had at most so much time
        began_at = later(ended.at, -compute_complete_within(replace(step, attempt=number)))
        attributes["arriero.attempt.start_is_estimated"] = True
    links: Links = ()
    if number > 1:
        links = ((trace.trace_id, ids.derive_attempt(step.step_no, number - 1)),)
    error = None
    if not isinstance(outcome, Succeeded):
        error = outcome.failure.message
        attributes["error.type"] = outcome.failure.cause
        attributes["arriero.retried"] = isinstance(outcome, RetryAsked)
    return EndedSpan(
        f"{_name_step(step)} attempt",
        ids.derive_attempt(step.step_no, number),
        ids.derive_step(step.step_no, task.incarnation),
        min(began_at, ended.at),
        ended.at,
        attributes,
        error,
        links,
    )


def _build_step(step: StepRow, task: TaskRow, ids: SpanIds, finished_at: Instant) -> EndedSpan:
    attributes: dict[str, AttributeValue] = {
        "arriero.task.id": task.task_id,
        "arriero.step.name": step.label,
        "arriero.agent": step.agent,
        "arriero.step.state": step.state.value,
    }
    error = None
    if step.state is StepState.FAILED and step.failure is not None:
        failure = _read_failure(step.failure)
        attributes["error.type"], error = failure.cause, failure.message
    return EndedSpan(
        _name_step(step),
        ids.derive_step(step.step_no, task.incarnation),
        ids.derive_task(task.task_no, task.incarnation),
        max(step.opened_at, task.submitted_at),  # one of an earlier incarnation may be done again
        finished_at,
        attributes,
        error,
    )


def _build_task(task: TaskRow, trace: TaskTrace, ids: SpanIds, ended_at: Instant, links: Links) -> EndedSpan:
    error = None
    if task.state is not TaskState.PROCESSED:
        error = "" if task.failure is None else _read_task_failure(task.failure).reason
    if task.incarnation > 1:
        earlier = ids.derive_task(task.task_no, task.incarnation - 1)
        links = (*links, (trace.trace_id, earlier))
    return EndedSpan(
        task.workflow,
        ids.derive_task(task.task_no, task.incarnation),
        0 if trace.parent is None else trace.parent.span_id,
        task.submitted_at,
        ended_at,
        {
            "arriero.task.id": task.task_id,
            "arriero.workflow": task.workflow,
            "arriero.app": task.app,
            "arriero.task.state": task.state.value,
            "arriero.task.incarnation": task.incarnation,
        },
        error,
        links,
    )


def _name_step(step: StepRow) -> str:
    """Of low cardinality: without the key."""
    return f"undo {step.name}" if step.kind is StepKind.COMPENSATION else step.name
