"""The trace of a task as OpenTelemetry needs it."""

from typing import NamedTuple

from opentelemetry import trace

from .spans import TaskTrace

SAMPLED = trace.TraceFlags(trace.TraceFlags.SAMPLED)


class SampledTrace(NamedTuple):
    """The trace of a task, with what is decided and made once for all its spans."""

    task: TaskTrace
    is_sampled: bool
    state: trace.TraceState | None
