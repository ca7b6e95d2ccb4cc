"""What traces cost: `w1` with `App.trace()`, and without.

The Apps run at once in this process, each on a store of its own, and work in turn. So they meet the same machine. Two of them
are not traced: what they differ by is noise. Two are: the exporter of one drops its spans, that of the other one reads them.
"""

import gc
import statistics
from collections.abc import Sequence
from contextlib import AsyncExitStack

from arriero_breaker_cost import finish, make_app
from arriero_masses import beside
from common import WARM_UP_TASKS, Spending
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult

TURNS = 40  # of each App: short ones, because other programs' share of the machine changes within seconds
ROOM = 100_000  # spans in the queue: none may be dropped before it reaches the exporter


class Dropping(SpanExporter):
    """Counts the spans and drops them."""

    def __init__(self) -> None:
        self.count = 0

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        self.count += len(spans)
        return SpanExportResult.SUCCESS


class Reading(Dropping):
    """Reads what an exporter sends, and sends nothing."""

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        for span in spans:
            dict(span.attributes or {})
            _ = span.name, span.kind, span.context, span.parent, span.start_time, span.end_time, span.status, span.links
            _ = span.events, span.resource, span.instrumentation_scope
        return super().export(spans)


async def trace_cost(tasks: int, url: str) -> dict[str, float]:
    """CPU with traces, divided by that without, as the median over turns; and the noise: how much two Apps without differ."""
    exporters: list[Dropping | None] = [None, None, Dropping(), Reading()]
    apps, providers = [], []
    for exporter in exporters:
        app = make_app(has_defaults=True)
        if exporter is not None:
            provider = TracerProvider(shutdown_on_exit=False)
            provider.add_span_processor(BatchSpanProcessor(exporter, max_queue_size=ROOM))
            app.trace(provider)
            providers.append(provider)
        apps.append(app)
    taken: list[list[float]] = [[] for _ in apps]
    async with AsyncExitStack() as stack:
        for number, app in enumerate(apps):
            await stack.enter_async_context(app.running(store=beside(url, number) if number else url))
            await finish(app, WARM_UP_TASKS)
        for turn in range(TURNS):
            for place in range(len(apps)):
                chosen = (turn + place) % len(apps)  # none always comes first
                gc.collect()
                spending = Spending()
                await finish(apps[chosen], tasks // TURNS)
                for provider in providers:  # also what the exporter's thread still has to do
                    provider.force_flush()
                taken[chosen].append(spending.figures(tasks // TURNS)["cpu"])
    done = WARM_UP_TASKS + tasks // TURNS * TURNS
    assert all(exporter is None or exporter.count == 7 * done for exporter in exporters), "spans were lost"
    for provider in providers:
        provider.shutdown()
    plain, control, dropping, reading = taken
    pairs = {"dropped": dropping, "read": reading, "noise": control}
    ratios = {name: [a / b for a, b in zip(cpu, plain, strict=True)] for name, cpu in pairs.items()}
    low, middle, high = statistics.quantiles(ratios["dropped"], n=4)
    return {
        "dropped": middle,
        "dropped, quartile 1": low,
        "dropped, quartile 3": high,
        "read": statistics.median(ratios["read"]),
        "noise": abs(statistics.median(ratios["noise"]) - 1),
        "off": statistics.median(plain),
        "on": statistics.median(dropping),
    }
