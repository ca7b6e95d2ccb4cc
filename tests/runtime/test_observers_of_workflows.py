"""Log handlers and span exporters that are called while workflow code runs are no part of it."""

import asyncio
import logging
import logging.handlers
import socket
from collections.abc import Callable, Iterator, Sequence
from types import ModuleType
from typing import Any

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExporter, SpanExportResult

from arriero import Agent, App, Attempt, TaskFailed, testing, workflow

shop = Agent("shop")
log = logging.getLogger("a shop")


@shop.step
async def measure(attempt: Attempt, text: str) -> int:
    return len(text)


@workflow
async def logs_a_line() -> int:
    log.warning("begins")
    return await measure("x")


@workflow
async def logs_nothing() -> int:
    return await measure("x" * 300_000)  # arriero warns of its size


@pytest.fixture
def receiver() -> Iterator[socket.socket]:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as opened:
        opened.bind(("127.0.0.1", 0))
        opened.settimeout(10)
        yield opened


@pytest.fixture
def closed_port() -> int:
    with socket.socket() as once:
        once.bind(("127.0.0.1", 0))
        port: int = once.getsockname()[1]
        return port


class LoopHandler(logging.Handler):
    """Asks the running loop for what a workflow's loop does not have."""

    def emit(self, record: logging.LogRecord) -> None:
        try:
            asyncio.get_running_loop().call_later(1, print)
        except Exception:
            self.handleError(record)


class CommandHandler(logging.Handler):
    """Starts a program for each line, from a function of the user's."""

    def emit(self, record: logging.LogRecord) -> None:
        import subprocess

        subprocess.run(["true"], check=True)


HANDLERS: dict[str, Callable[[int], logging.Handler]] = {
    "TCP": lambda port: logging.handlers.SocketHandler("127.0.0.1", port),
    "HTTP": lambda port: logging.handlers.HTTPHandler(f"127.0.0.1:{port}", "/"),
    "program": lambda port: CommandHandler(),
    "loop": lambda port: LoopHandler(),
}


async def run(call: Any) -> Any:
    async with testing.running(App("shop", agents=[shop], workflows=[call.workflow])) as world:
        return await (await world.app.submit(call)).result()


@pytest.fixture
def attach(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[logging.Handler], None]]:
    attached: list[logging.Handler] = []
    monkeypatch.setattr(logging, "raiseExceptions", False)

    def add(handler: logging.Handler) -> None:
        attached.append(handler)
        logging.getLogger().addHandler(handler)

    yield add
    for handler in attached:
        logging.getLogger().removeHandler(handler)
        handler.close()


@pytest.mark.parametrize("name", HANDLERS)
async def test_a_log_line_of_a_workflow_holds_no_task_whatever_its_handler_calls(
    name: str, closed_port: int, attach: Callable[[logging.Handler], None]
) -> None:
    attach(HANDLERS[name](closed_port))
    assert await run(logs_a_line()) == 1


@pytest.mark.parametrize("call", [logs_a_line, logs_nothing], ids=str)
async def test_a_line_reaches_syslog_also_one_that_arriero_writes_itself(
    call: Any, receiver: socket.socket, attach: Callable[[logging.Handler], None]
) -> None:
    attach(logging.handlers.SysLogHandler(receiver.getsockname()))
    assert await run(call()) in (1, 300_000)
    assert (b"begins" if call is logs_a_line else b"slows its task down") in receiver.recv(2000)


async def test_a_span_exporter_that_sends_while_the_workflow_runs_holds_no_task(receiver: socket.socket) -> None:
    class Exporter(SpanExporter):
        def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
                sender.sendto(spans[0].name.encode(), receiver.getsockname())
            return SpanExportResult.SUCCESS

    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(Exporter()))
    tracer = provider.get_tracer("a shop")

    @workflow
    async def traced() -> int:
        with tracer.start_as_current_span("weighing"):
            pass
        return await measure("x")

    assert await run(traced()) == 1
    assert receiver.recv(2000) == b"weighing"


def build_sender(module: str, receiver: socket.socket) -> Callable[[], None]:
    """A function of a module with this name that sends over a socket."""
    made = ModuleType(module)
    vars(made)["socket"] = socket

    def send() -> None:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
            sender.sendto(b"sent", receiver.getsockname())

    return type(send)(send.__code__, {**vars(made), "receiver": receiver}, closure=send.__closure__)


@pytest.mark.parametrize("module", ["shop", "logging_of_ours", "opentelemetry.instrumentation.requests"])
async def test_a_socket_of_the_workflow_itself_still_holds_its_task(module: str, receiver: socket.socket) -> None:
    send = build_sender(module, receiver)

    @workflow
    async def sends() -> int:
        send()
        return await measure("x")

    with pytest.raises(
        TaskFailed, match=r"workflow code called socket\.sendto, that is a socket: move the call into a step"
    ):
        await run(sends())


@pytest.mark.parametrize(
    "module", ["logging.handlers", "loguru._handler", "structlog._base", "opentelemetry.exporter.otlp"]
)
async def test_modules_that_only_watch_may_use_sockets(module: str, receiver: socket.socket) -> None:
    send = build_sender(module, receiver)

    @workflow
    async def sends() -> int:
        send()
        return await measure("x")

    assert await run(sends()) == 1
    assert receiver.recv(100) == b"sent"


# --- what a function returns without awaiting it
@shop.step(name="wrapped")
def wrap(attempt: Attempt) -> Any:
    return weigh(2)


async def weigh(weight: int) -> int:
    return weight


@shop.step(name="asks a step")
def ask_a_step(attempt: Attempt) -> Any:
    return measure("x")


@workflow
async def weighs() -> int:
    result: int = await wrap()
    return result


@workflow
async def asks() -> int:
    result: int = await ask_a_step()
    return result


@workflow
async def gives_a_call() -> int:
    return await measure(measure("x"))  # type: ignore[arg-type]


@pytest.mark.filterwarnings("ignore:coroutine 'weigh' was never awaited")
@pytest.mark.parametrize(
    ("call", "named"),
    [
        (
            weighs,
            r"result of step wrapped .* the coroutine of weigh \(.*test_observers.*:\d+\) was never awaited: .*async def",
        ),
        (asks, r"result of step asks a step .* <call of step measure> was never awaited: await it"),
        (gives_a_call, r"arguments of step measure .* <call of step measure> was never awaited: await it"),
    ],
    ids=str,
)
async def test_what_a_plain_function_returns_unawaited_is_refused_with_both_names_and_the_remedy(
    call: Any, named: str
) -> None:
    with pytest.raises(TaskFailed, match=named):
        await run(call())
