"""Spans that end with a command: values in, values out.

A span is reported by the process whose command ended the thing, once the command is written. The command's guard holds only once,
so no two processes say the same span. Ids are computed from the rows, and instants are those that the store has recorded.
"""

from collections.abc import Callable
from typing import Protocol

import msgspec
from msgspec.structs import replace

from ..core.supervision import compute_complete_within
from ..core.transitions import has_ended
from ..model import Instant, StepKind, StepRow, StepState, TaskRow, TaskState, later
from ..model.answers import Applied, Dispatch
from ..model.commands import Advance, AnyCommand, Recover, Report
from ..model.failures import read_step_failure, read_task_failure
from ..model.moves import Delivered, GaveUp, Outcome, Reported, RetryAsked, Succeeded
from ..model.tags import read_tags
from ..model.trace_context import SpanIds, TraceContext, read_link, read_trace_context

AttributeValue = str | int | bool
_ENDED_STEPS = frozenset((StepState.COMPLETED, StepState.FAILED, StepState.WITHDRAWN))
Links = tuple[tuple[int, int], ...]  # to other spans of tasks, as trace and span


class EndedSpan(Protocol):
    """A span that has ended.

    The classes below keep what it is made of, without payloads, and compute the rest when an exporter asks.
    """

    @property
    def name(self) -> str:
        """Name of low cardinality, without keys and ids."""

    @property
    def span_id(self) -> int:
        """Computed from the row."""

    @property
    def parent_id(self) -> int:
        """0: it is the root of its trace."""

    @property
    def start(self) -> Instant:
        """Recorded instant of the beginning, by the store's clock."""

    @property
    def end(self) -> Instant:
        """Recorded instant of the end, by the store's clock."""

    @property
    def attributes(self) -> dict[str, AttributeValue]:
        """Attributes of the span."""

    @property
    def error(self) -> str | None:
        """Text of the failure; None: there is none."""

    @property
    def links(self) -> Links:
        """Links to earlier spans."""


class SpanOfAttempt(msgspec.Struct, frozen=True, gc=False):
    """An attempt that has ended. ``tries`` None: nobody reported how many there were. ``is_retried`` None: it succeeded."""

    ids: SpanIds
    trace_id: int
    task_id: str
    incarnation: int
    step_no: int
    kind: StepKind
    step: str
    label: str
    agent: str
    number: int
    tries: int | None
    start: Instant
    is_estimated: bool  # its start
    end: Instant
    error: str | None = None
    error_type: str = ""
    is_retried: bool | None = None
    tags: str | None = None

    @property
    def name(self) -> str:
        return f"{_name_step(self.kind, self.step)} attempt"

    @property
    def span_id(self) -> int:
        return self.ids.derive_attempt(self.step_no, self.number)

    @property
    def parent_id(self) -> int:
        return self.ids.derive_step(self.step_no, self.incarnation)

    @property
    def attributes(self) -> dict[str, AttributeValue]:
        found: dict[str, AttributeValue] = {
            "arriero.task.id": self.task_id,
            "arriero.step.name": self.label,
            "arriero.agent": self.agent,
            "arriero.attempt.number": self.number,
            **_name_tags(self.tags),
        }
        if self.tries is not None:
            found["arriero.attempt.tries"] = self.tries
        if self.is_estimated:
            found["arriero.attempt.start_is_estimated"] = True
        if self.is_retried is not None:
            found["error.type"] = self.error_type
            found["arriero.retried"] = self.is_retried
        return found

    @property
    def links(self) -> Links:
        if self.number <= 1:
            return ()
        return ((self.trace_id, self.ids.derive_attempt(self.step_no, self.number - 1)),)


class SpanOfStep(msgspec.Struct, frozen=True, gc=False):
    """A step or compensation that has ended."""

    ids: SpanIds
    task_no: int
    task_id: str
    incarnation: int
    step_no: int
    kind: StepKind
    step: str
    label: str
    agent: str
    state: StepState
    start: Instant
    end: Instant
    error: str | None = None
    error_type: str = ""

    @property
    def name(self) -> str:
        return _name_step(self.kind, self.step)

    @property
    def span_id(self) -> int:
        return self.ids.derive_step(self.step_no, self.incarnation)

    @property
    def parent_id(self) -> int:
        return self.ids.derive_task(self.task_no, self.incarnation)

    @property
    def attributes(self) -> dict[str, AttributeValue]:
        found: dict[str, AttributeValue] = {
            "arriero.task.id": self.task_id,
            "arriero.step.name": self.label,
            "arriero.agent": self.agent,
            "arriero.step.state": self.state.value,
        }
        if self.error is not None:
            found["error.type"] = self.error_type
        return found

    @property
    def links(self) -> Links:
        return ()


class SpanOfTask(msgspec.Struct, frozen=True, gc=False):
    """A task that has ended. ``link``: to the task before it in its convoy."""

    ids: SpanIds
    trace_id: int
    parent_id: int
    task_no: int
    task_id: str
    incarnation: int
    name: str
    app: str
    state: TaskState
    start: Instant
    end: Instant
    error: str | None
    link: tuple[int, int] | None
    tags: str | None = None

    @property
    def span_id(self) -> int:
        return self.ids.derive_task(self.task_no, self.incarnation)

    @property
    def attributes(self) -> dict[str, AttributeValue]:
        return {
            "arriero.task.id": self.task_id,
            "arriero.workflow": self.name,
            "arriero.app": self.app,
            "arriero.task.state": self.state.value,
            "arriero.task.incarnation": self.incarnation,
            **_name_tags(self.tags),
        }

    @property
    def links(self) -> Links:
        links: Links = () if self.link is None else (self.link,)
        if self.incarnation > 1:
            earlier = (self.trace_id, self.ids.derive_task(self.task_no, self.incarnation - 1))
            return links if earlier in links else (*links, earlier)  # the convoy may have been blocked on it
        return links


class TaskTrace(msgspec.Struct, frozen=True, gc=False):
    """The trace of a task. ``parent``: the submitter's span; None: it was submitted without one."""

    trace_id: int
    parent: TraceContext | None

    @property
    def state(self) -> str:
        """The W3C tracestate: values that vendors add to a trace."""
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
) -> list[EndedSpan]:
    """List the spans that a command has ended: attempts, then steps, then the task.

    Args:
        now: the store's clock, after the command; asked where no row has the instant.
        take_begin: returns when an attempt began, by step and fence; None: this process does not know. Asked once.
    """
    task, steps = answer.task, answer.steps
    found: list[EndedSpan] = []
    if isinstance(command, Recover):
        step = _find_row(steps, command.step_no)
        if step is not None and not command.starved:
            is_same = isinstance(command.outcome, GaveUp) and step.state is StepState.FAILED
            number, at = step.attempt if is_same else step.attempt - 1, step.finished_at or now()
            began_at = take_begin((step.step_no, command.fence), None)
            found.append(_build_attempt(step, task, trace, ids, number, None, command.outcome, began_at, at))
    else:
        for item in _list_reports(command):
            if isinstance(item, Reported) and (step := _find_row(steps, item.step_no)) is not None:
                began_at = take_begin((item.step_no, item.fence), None)
                found.append(
                    _build_attempt(
                        step, task, trace, ids, item.attempt, item.tries, item.outcome, began_at, item.delivered_at
                    )
                )
    for step in steps:
        if step.state in _ENDED_STEPS and step.kind is not StepKind.TIMER and step.finished_at is not None:
            found.append(_build_step(step, task, ids, step.finished_at))
    if task.ended_at is not None and has_ended(command, task):
        found.append(_build_task(task, trace, ids, task.ended_at, read_link(answer.trace_link)))
    return found


def _list_reports(command: AnyCommand) -> tuple[Delivered, ...]:
    if isinstance(command, Advance):
        return command.delivered
    return (command.report,) if isinstance(command, Report) else ()


def _find_row(steps: tuple[StepRow, ...], step_no: int) -> StepRow | None:
    for step in steps:
        if step.step_no == step_no:
            return step
    return None


def _build_attempt(
    step: StepRow,
    task: TaskRow,
    trace: TaskTrace,
    ids: SpanIds,
    number: int,
    tries: int | None,
    outcome: Outcome,
    began_at: Instant | None,
    at: Instant,
) -> SpanOfAttempt:
    is_estimated = began_at is None
    if began_at is None:  # it began in another process: it had at most so much time
        began_at = later(at, -compute_complete_within(replace(step, attempt=number)))
    error, error_type, is_retried = None, "", None
    if not isinstance(outcome, Succeeded):
        error, error_type = outcome.failure.message, outcome.failure.cause
        is_retried = isinstance(outcome, RetryAsked)
    return SpanOfAttempt(
        ids,
        trace.trace_id,
        task.task_id,
        task.incarnation,
        step.step_no,
        step.kind,
        step.name,
        step.label,
        step.agent,
        number,
        tries,
        min(began_at, at),
        is_estimated,
        at,
        error,
        error_type,
        is_retried,
        task.tags,
    )


def _build_step(step: StepRow, task: TaskRow, ids: SpanIds, finished_at: Instant) -> SpanOfStep:
    error, error_type = None, ""
    if step.state is StepState.FAILED and step.failure is not None:
        failure = read_step_failure(step.failure)
        error, error_type = failure.message, failure.cause
    return SpanOfStep(
        ids,
        task.task_no,
        task.task_id,
        task.incarnation,
        step.step_no,
        step.kind,
        step.name,
        step.label,
        step.agent,
        step.state,
        max(step.opened_at, task.submitted_at),  # one of an earlier incarnation may be done again
        finished_at,
        error,
        error_type,
    )


def _build_task(
    task: TaskRow, trace: TaskTrace, ids: SpanIds, ended_at: Instant, link: tuple[int, int] | None
) -> SpanOfTask:
    error = None
    if task.state is not TaskState.PROCESSED:
        error = "" if task.failure is None else read_task_failure(task.failure).reason
    return SpanOfTask(
        ids,
        trace.trace_id,
        0 if trace.parent is None else trace.parent.span_id,
        task.task_no,
        task.task_id,
        task.incarnation,
        task.workflow,
        task.app,
        task.state,
        task.submitted_at,
        ended_at,
        error,
        link,
        task.tags,
    )


def _name_step(kind: StepKind, name: str) -> str:
    """Build a name of low cardinality: it leaves the key out."""
    return f"undo {name}" if kind is StepKind.COMPENSATION else name


def _name_tags(tags: str | None) -> dict[str, AttributeValue]:
    """Name the tags of a task as attributes of its spans."""
    return {f"arriero.tag.{name}": value for name, value in read_tags(tags).items()}
