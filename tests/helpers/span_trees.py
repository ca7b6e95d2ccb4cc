"""An exporter in memory, and the spans that it was given as a tree."""

from collections.abc import Sequence

from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import Sampler


class Spans:
    """Spans of one provider."""

    def __init__(self, sampler: Sampler | None = None) -> None:
        self.exporter = InMemorySpanExporter()
        self.provider = TracerProvider(sampler=sampler)
        self.provider.add_span_processor(SimpleSpanProcessor(self.exporter))

    def __iter__(self):  # type: ignore[no-untyped-def]
        return iter(self.exporter.get_finished_spans())

    def all(self, name: str) -> list[ReadableSpan]:
        return [span for span in self if span.name == name]

    def one(self, name: str) -> ReadableSpan:
        (span,) = self.all(name)
        return span

    def tree(self) -> str:
        return draw_tree(self.exporter.get_finished_spans())


def draw_tree(spans: Sequence[ReadableSpan]) -> str:
    """A line for each span, indented below its parent, in the order of their beginnings."""
    ids = {id_of(span) for span in spans}
    lines: list[str] = []

    def draw(span: ReadableSpan, depth: int) -> None:
        lines.append(f"{'  ' * depth}{span.name}{' !' if span.status.status_code.name == 'ERROR' else ''}")
        for child in ordered:
            if child.parent is not None and child.parent.span_id == id_of(span):
                draw(child, depth + 1)

    ordered = sorted(spans, key=lambda span: (span.start_time or 0, span.end_time or 0))
    for span in ordered:
        if span.parent is None or span.parent.span_id not in ids:
            draw(span, 0)
    return "\n".join(lines)


def id_of(span: ReadableSpan) -> int:
    assert span.context is not None
    return span.context.span_id


def trace_of(span: ReadableSpan) -> int:
    assert span.context is not None
    return span.context.trace_id
