"""An order whose payment is declined after a retry of the stock: the App, its tracer provider, and a process that runs it.

python examples/traces/shop.py ROLE STORE SPANS     # ROLE: scheduler or agents
"""

import asyncio
import json
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExporter, SpanExportResult

from arriero import Agent, App, Attempt, Permanent, Retry, Transient, workflow

stock = Agent("stock")
bank = Agent("bank")
tracer = trace.get_tracer("shop")


@stock.step(retry=Retry(tries=1))
async def reserve(attempt: Attempt, order: str) -> str:
    with tracer.start_as_current_span("SELECT shelf"):  # a span of the step's own code
        if attempt.number == 1:
            raise Transient("the shelf is locked")
    return order


@reserve.compensation
async def release(order: str) -> None:
    pass


@bank.step(effect_free=True)
async def charge(order: str) -> str:
    raise Permanent("declined")


@workflow
async def fulfil(order: str) -> str:
    await reserve(order)
    return await charge(order)


class LinesExporter(SpanExporter):
    """Writes each span as a line of JSON."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        with self._file.open("a", encoding="utf-8") as lines:
            lines.writelines(json.dumps(json.loads(span.to_json(indent=None))) + "\n" for span in spans)
        return SpanExportResult.SUCCESS


def make_app(store: str, spans: Path) -> App:
    """The App, traced by the global provider, which writes to a file."""
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(LinesExporter(spans)))
    trace.set_tracer_provider(provider)
    app = App("shop", agents=[stock, bank], workflows=[fulfil], store=store)
    app.trace()
    return app


async def run(role: str, store: str, spans: Path) -> None:
    """Run one half of the App until SIGTERM."""
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    roles = ["agents"] if role == "agents" else ["scheduler", "supervisor"]
    async with make_app(store, spans).running(roles=roles):
        print("ready", flush=True)
        await stop.wait()


if __name__ == "__main__":
    asyncio.run(run(sys.argv[1], sys.argv[2], Path(sys.argv[3])))
