"""Gives the spans of tasks to OpenTelemetry.

A span may end in another process than the one in which it began. The API of OpenTelemetry cannot begin a span under a given id,
so a span is made when it has ended, as a ``ReadableSpan`` of the SDK, and goes to the provider's span processors by ``on_end``.
While an attempt runs, its span is current without being recorded, so that spans of the step's code are its children.
"""

import contextvars
import logging
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from ..errors import describe_install

try:
    from opentelemetry import context as current
    from opentelemetry import trace
    from opentelemetry.context import Context
except ImportError as missing:
    raise ImportError(f"App.trace() needs opentelemetry-api: {describe_install('otel')}") from missing

from ..errors import DefinitionError
from ..model import Instant, TaskRow
from ..model.answers import Applied, Dispatch
from ..model.commands import AnyCommand
from ..model.trace_context import SpanIds, TraceContext, encode_link, encode_trace_context
from ..store.state_store import StateStore
from .spans import TaskTrace, find_attempt_span, find_task_trace, list_ended_spans
from .task_span import SAMPLED, SampledTrace

logger = logging.getLogger("arriero")
REMEMBERED_MAX = 10_000  # traces, and attempts whose beginning is known here
_NO_PARENT = Context()  # without it, a sampler takes the current span for the parent
_NOT_SAMPLED = trace.TraceFlags(trace.TraceFlags.DEFAULT)


class TracingOptions:
    """Options of ``App.trace``. ``provider`` None: the global provider at the time when the App is opened."""

    def __init__(self, provider: trace.TracerProvider | None) -> None:
        if provider is not None and not isinstance(provider, trace.TracerProvider):
            raise DefinitionError(f"trace() takes a TracerProvider of OpenTelemetry, not {provider!r}")
        self._provider = provider

    def make_tracer(self, store: StateStore) -> "TaskTracer | None":
        """Make the tracer of a store's tasks; None if no provider of the SDK is there, so that nothing would be exported."""
        provider = self._provider or trace.get_tracer_provider()
        tracer = provider.get_tracer("arriero")
        if hasattr(tracer, "span_processor") and hasattr(tracer, "sampler"):
            return TaskTracer(tracer, store)
        logger.warning("tasks are not traced: %s is not a TracerProvider of opentelemetry-sdk", type(provider).__name__)
        return None

    @staticmethod
    def find_submitter() -> str | None:
        """The trace context of the one who submits now, for the task's row; None: there is none."""
        found = trace.get_current_span().get_span_context()
        if not found.is_valid:
            return None
        state = found.trace_state.to_header()
        return encode_trace_context(TraceContext(found.trace_id, found.span_id, found.trace_flags.sampled, state))


class TaskTracer:
    """Traces the tasks of one store in this process.

    Args:
        tracer: of the SDK.
    """

    def __init__(self, tracer: Any, store: StateStore) -> None:
        from .task_span import TaskSpan

        self._make_span = TaskSpan
        self._processor, self._sampler, self._resource = tracer.span_processor, tracer.sampler, tracer.resource
        self._ids, self._now = SpanIds(store.store_id), store.now
        self._traces: OrderedDict[tuple[str, str | None], SampledTrace] = OrderedDict()
        self._begun: OrderedDict[tuple[int, int], Instant] = OrderedDict()

    # --- attempts that begin
    def find_context(self, dispatch: Dispatch) -> TraceContext:
        """The span of an attempt, as what it calls is notified of it."""
        found = self._find_trace(dispatch.task_id, dispatch.trace_context)
        span_id = find_attempt_span(self._ids, dispatch)
        return TraceContext(found.task.trace_id, span_id, found.is_sampled, found.task.state)

    def begin_attempt(self, dispatch: Dispatch) -> contextvars.Context:
        """Note that an attempt begins. Returns the context to run it in: its span is the current one there."""
        step = dispatch.step
        _remember(self._begun, (step.step_no, step.fence), dispatch.now)
        context = contextvars.copy_context()
        context.run(_attach, AttemptSpan(self._find_span_context, dispatch))
        return context

    def find_link(self, task: TaskRow) -> str | None:
        """Find what leads to the span of a task that is about to end, for the next one of its convoy; None: it is not sampled."""
        found = self._find_trace(task.task_id, task.trace_context)
        own = self._ids.derive_task(task.task_no, task.incarnation)
        return encode_link(found.task.trace_id, own) if found.is_sampled else None

    def _find_span_context(self, dispatch: Dispatch) -> trace.SpanContext:
        found = self._find_trace(dispatch.task_id, dispatch.trace_context)
        return _build_context(found, find_attempt_span(self._ids, dispatch))

    # --- what has ended
    def note_applied(self, command: AnyCommand, answer: Applied) -> None:
        """Export the spans that a command of this process ended. Raises nothing: a span must not cost a task."""
        try:
            self._export(command, answer)
        except Exception:
            logger.exception("the spans of task %s could not be exported", answer.task.task_id)

    def _export(self, command: AnyCommand, answer: Applied) -> None:
        task = answer.task
        found = self._find_trace(task.task_id, task.trace_context)
        if not found.is_sampled:
            return
        for span in list_ended_spans(command, answer, found.task, self._ids, self._now, self._begun.pop):
            self._processor.on_end(self._make_span(span, found, self._resource))
        if task.ended_at is not None:
            self._traces.pop((task.task_id, task.trace_context), None)

    def _find_trace(self, task_id: str, kept: str | None) -> SampledTrace:
        found = self._traces.get((task_id, kept))
        if found is None:
            task = find_task_trace(self._ids, task_id, kept)
            state = trace.TraceState.from_header([task.state]) if task.state else None
            found = SampledTrace(task, self._is_sampled(task), state)
            _remember(self._traces, (task_id, kept), found)
        return found

    def _is_sampled(self, task: TaskTrace) -> bool:
        """The submitter's decision; without one that of the provider's sampler, which is made from the trace id."""
        if task.parent is not None:
            return task.parent.is_sampled
        return bool(self._sampler.should_sample(_NO_PARENT, task.trace_id, "arriero.task").decision.is_sampled())


class AttemptSpan(trace.NonRecordingSpan):
    """The span of an attempt that runs, as the parent of spans of its code. Its ids are computed for the caller first."""

    def __init__(self, find: Callable[[Dispatch], trace.SpanContext], dispatch: Dispatch) -> None:
        self._find, self._dispatch = find, dispatch

    def get_span_context(self) -> trace.SpanContext:
        return self._find(self._dispatch)

    def __repr__(self) -> str:
        return f"AttemptSpan({self.get_span_context()!r})"


def _build_context(found: SampledTrace, span_id: int) -> trace.SpanContext:
    flags = SAMPLED if found.is_sampled else _NOT_SAMPLED
    return trace.SpanContext(found.task.trace_id, span_id, False, flags, found.state)


def _attach(span: trace.Span) -> None:
    """Make a span that is recorded elsewhere the current one."""
    _ = current.attach(trace.set_span_in_context(span))


def attach_context(context: TraceContext) -> None:
    """Make a span of another process the current one."""
    state = trace.TraceState.from_header([context.state]) if context.state else None
    found = SampledTrace(TaskTrace(context.trace_id, None), context.is_sampled, state)
    _attach(trace.NonRecordingSpan(_build_context(found, context.span_id)))


def _remember(of: "OrderedDict[Any, Any]", key: object, value: object) -> None:
    of[key] = value
    if len(of) > REMEMBERED_MAX:
        of.popitem(last=False)
