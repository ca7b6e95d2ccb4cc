"""A span of a task as OpenTelemetry's processors and exporters take it.

The event loop only says which span has ended. The rest is made when it is first read, which batching processors do in a
thread of their own: for many spans at the same time, and not at all for those that a processor drops.
"""

from typing import Any, NamedTuple

from opentelemetry import trace
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.util.instrumentation import InstrumentationScope

from .spans import EndedSpan, TaskTrace

SAMPLED = trace.TraceFlags(trace.TraceFlags.SAMPLED)


class SampledTrace(NamedTuple):
    """The trace of a task, with what is decided and made once for all its spans."""

    task: TaskTrace
    is_sampled: bool
    state: trace.TraceState | None


_SCOPE = InstrumentationScope("arriero")
_UNSET = trace.Status(trace.StatusCode.UNSET)


class TaskSpan(ReadableSpan):
    """A span that is filled when a caller first asks for more than its context."""

    def __init__(self, ended: EndedSpan, found: SampledTrace, resource: Resource) -> None:
        # Without that of the base class: __getattr__ calls it.
        self._context = trace.SpanContext(found.task.trace_id, ended.span_id, False, SAMPLED, found.state)
        self._ended, self._found, self._shared = ended, found, resource

    def __getattr__(self, name: str) -> Any:
        """Python calls this only for what is missing. Two exporters may fill the same span at the same time, each with the same."""
        known = vars(self)
        if "_shared" not in known:  # a copy that is being made
            raise AttributeError(name)
        self.fill()
        if name not in known:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return known[name]

    def fill(self) -> None:
        """Make what exporters read."""
        span, found, parent = self._ended, self._found, None
        if span.parent_id:
            is_remote = found.task.parent is not None and found.task.parent.span_id == span.parent_id
            parent = trace.SpanContext(found.task.trace_id, span.parent_id, is_remote, SAMPLED, found.state)
        super().__init__(
            name=span.name,
            context=self._context,
            parent=parent,
            resource=self._shared,
            attributes=span.attributes,
            links=[_build_link(*link) for link in span.links] if span.links else (),
            kind=trace.SpanKind.INTERNAL,
            status=_UNSET if span.error is None else trace.Status(trace.StatusCode.ERROR, span.error),
            start_time=span.start * 1000,
            end_time=span.end * 1000,
            instrumentation_scope=_SCOPE,
        )


def _build_link(trace_id: int, span_id: int) -> trace.Link:
    return trace.Link(trace.SpanContext(trace_id, span_id, True, SAMPLED))
