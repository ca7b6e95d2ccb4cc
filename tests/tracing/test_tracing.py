"""Traces of tasks: the tree of spans, who its parent is, and what an attempt hands on."""

import asyncio
import copy
import sys
import threading
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, ParentBased, TraceIdRatioBased
from span_trees import Spans, id_of, trace_of
from traced_steps import printer, tell

from arriero import (
    Agent,
    App,
    Attempt,
    DefinitionError,
    InvalidInput,
    Permanent,
    Retry,
    Supervision,
    TaskCompensated,
    TaskFailed,
    Transient,
    Undo,
    workflow,
)
from arriero.model.trace_context import SpanIds
from arriero.tracing.task_span import TaskSpan

shop = Agent("shop", max_in_flight=10, breaker=None, retry_budget=None)
seen: list[dict[str, str]] = []
current: list[trace.SpanContext] = []


@shop.step(retry=Retry(tries=1), effect_free=True)
async def look(attempt: Attempt, order: str) -> str:
    seen.append(dict(attempt.headers))
    current.append(trace.get_current_span().get_span_context())
    if attempt.number == 1 and order.startswith("slow"):
        raise Transient("not yet")
    return order


@shop.step
async def reserve(attempt: Attempt, order: str) -> str:
    return order


@reserve.compensation
async def release(undo: Undo[str], order: str) -> None:
    seen.append(dict(undo.headers))


@shop.step(effect_free=True)
async def pay(attempt: Attempt, order: str) -> str:
    if order.startswith("bad"):
        raise Permanent("declined")
    return order


@shop.step(effect_free=True)
def print_label(attempt: Attempt, order: str) -> str:
    current.append(trace.get_current_span().get_span_context())
    with trace.get_tracer("users", tracer_provider=users.provider).start_as_current_span("their own"):
        assert threading.current_thread() is not threading.main_thread()
    return order


@workflow
async def fulfil(order: str) -> str:
    await look(order)
    await reserve(order)
    return await pay(order)


@shop.step(effect_free=True, supervision=Supervision(then="hold"))
async def pay_or_ask(attempt: Attempt, order: str) -> str:
    if order.startswith("bad"):
        raise Permanent("declined")
    return order


@workflow
async def fulfil_or_hold(order: str) -> str:
    return await pay_or_ask(order)


@workflow
async def label(order: str) -> str:
    return await print_label(order)


users = Spans()


@pytest.fixture
def spans() -> Spans:
    seen.clear()
    current.clear()
    users.exporter.clear()
    return Spans()


@pytest.fixture
def make_app(tmp_path: Path) -> Callable[[], App]:
    return lambda: App(
        "till", agents=[shop], workflows=[fulfil, fulfil_or_hold, label], store=f"sqlite:///{tmp_path}/store.db"
    )


@pytest.fixture
async def app(make_app: Callable[[], App], spans: Spans) -> AsyncIterator[App]:
    app = make_app()
    app.trace(spans.provider)
    async with app.running():
        yield app


async def test_a_task_is_a_tree_of_its_steps_their_attempts_and_its_undo(app: App, spans: Spans) -> None:
    with pytest.raises(TaskCompensated):
        await (await app.submit(fulfil("bad"), task_id="1")).result()
    assert spans.tree() == "\n".join(
        [
            "fulfil !",
            "  look",
            "    look attempt",
            "  reserve",
            "    reserve attempt",
            "  pay !",
            "    pay attempt !",
            "  undo reserve",
            "    undo reserve attempt",
        ]
    )
    assert len({trace_of(span) for span in spans}) == 1
    assert len({id_of(span) for span in spans}) == 9
    task = spans.one("fulfil")
    assert task.attributes is not None
    assert task.attributes["arriero.task.id"] == "1"
    assert task.attributes["arriero.task.state"] == "compensated"
    assert "declined" in (task.status.description or "")


async def test_a_retried_attempt_links_to_the_one_before_it(app: App, spans: Spans) -> None:
    await (await app.submit(fulfil("slow"))).result()
    first, second = spans.all("look attempt")
    assert first.status.status_code is trace.StatusCode.ERROR
    assert [link.context.span_id for link in second.links] == [id_of(first)]
    assert not first.links
    assert first.parent == second.parent


async def test_spans_begin_and_end_within_their_parents(app: App, spans: Spans) -> None:
    await (await app.submit(fulfil("slow"))).result()
    by_id = {id_of(span): span for span in spans}
    for span in spans:
        assert span.start_time is not None and span.end_time is not None
        assert span.start_time <= span.end_time
        if span.parent is not None:
            parent = by_id[span.parent.span_id]
            assert parent.start_time is not None and parent.end_time is not None
            assert parent.start_time <= span.start_time
            assert span.end_time <= parent.end_time


async def test_the_submitters_current_span_is_the_tasks_parent(app: App, spans: Spans) -> None:
    tracer = trace.get_tracer("web", tracer_provider=spans.provider)
    with tracer.start_as_current_span("POST /orders") as request:
        task = await app.submit(fulfil("1"))
    await task.result()
    found = spans.one("fulfil")
    assert found.parent is not None
    assert found.parent.span_id == request.get_span_context().span_id
    assert trace_of(found) == request.get_span_context().trace_id


async def test_without_a_parent_the_trace_is_made_from_the_tasks_id(app: App, spans: Spans) -> None:
    await (await app.submit(fulfil("1"), task_id="order-1")).result()
    assert spans.one("fulfil").parent is None
    assert trace_of(spans.one("fulfil")) == SpanIds(app.session.store.store_id).derive_trace("order-1")


async def test_an_attempts_headers_and_its_current_span_are_its_exported_span(app: App, spans: Spans) -> None:
    await (await app.submit(fulfil("1"))).result()
    attempt = spans.one("look attempt")
    expected = f"00-{trace_of(attempt):032x}-{id_of(attempt):016x}-01"
    assert seen[0]["traceparent"] == expected
    assert (current[0].trace_id, current[0].span_id) == (trace_of(attempt), id_of(attempt))


async def test_spans_of_a_steps_own_code_in_a_thread_are_children_of_the_attempt(app: App, spans: Spans) -> None:
    await (await app.submit(label("1"))).result()
    own = users.one("their own")
    assert own.parent is not None
    assert own.parent.span_id == id_of(spans.one("print_label attempt"))


async def test_a_header_of_w3c_is_kept_with_the_task_and_its_vendors_state_is_handed_on(app: App, spans: Spans) -> None:
    header = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
    await (await app.submit(fulfil("1"), traceparent=header, tracestate="vendor=x")).result()
    found = spans.one("fulfil")
    assert found.parent is not None
    assert found.parent.span_id == 0x00F067AA0BA902B7
    assert seen[0]["tracestate"] == "vendor=x"
    with pytest.raises(InvalidInput, match="traceparent"):
        await app.submit(fulfil("1"), traceparent="nonsense")


async def test_a_parent_that_is_not_sampled_is_honoured_and_told_to_services(app: App, spans: Spans) -> None:
    header = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00"
    await (await app.submit(fulfil("1"), traceparent=header)).result()
    assert list(spans) == []
    assert seen[0]["traceparent"].startswith("00-4bf92f3577b34da6a3ce929d0e0e4736-")
    assert seen[0]["traceparent"].endswith("-00")


async def test_whether_a_root_is_sampled_is_the_samplers_decision_for_the_whole_trace(
    make_app: Callable[[], App],
) -> None:
    spans = Spans(ParentBased(TraceIdRatioBased(0.5)))
    app = make_app()
    app.trace(spans.provider)
    async with app.running():
        for number in range(20):
            await (await app.submit(fulfil(str(number)), task_id=f"order-{number}")).result()
    traces = {trace_of(span) for span in spans}
    assert 0 < len(traces) < 20
    assert len(list(spans)) == 7 * len(traces)


async def test_a_provider_whose_sampler_drops_everything_gets_nothing(make_app: Callable[[], App]) -> None:
    spans = Spans(ALWAYS_OFF)
    app = make_app()
    app.trace(spans.provider)
    async with app.running():
        await (await app.submit(fulfil("1"))).result()
    assert list(spans) == []


async def test_an_app_that_is_not_traced_hands_on_what_the_submitter_gave(
    make_app: Callable[[], App], spans: Spans
) -> None:
    header = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
    app = make_app()
    async with app.running():
        await (await app.submit(fulfil("0"), task_id="0")).result()
        await (await app.submit(fulfil("1"), traceparent=header)).result()
    assert ["traceparent" in headers for headers in seen] == [False, True]
    assert seen[1]["traceparent"] == header


async def test_without_a_provider_of_the_sdk_nothing_is_traced_and_a_line_says_so(
    make_app: Callable[[], App], caplog: pytest.LogCaptureFixture
) -> None:
    app = make_app()
    app.trace(trace.NoOpTracerProvider())
    async with app.running():
        await (await app.submit(fulfil("1"))).result()
    assert "tasks are not traced: NoOpTracerProvider" in caplog.text


class FailingProcessor(SpanProcessor):
    """A processor with a bug."""

    def on_end(self, span: ReadableSpan) -> None:
        raise OSError("no exporter")


async def test_a_processor_that_fails_costs_no_task(
    make_app: Callable[[], App], caplog: pytest.LogCaptureFixture
) -> None:
    spans, app = Spans(), make_app()
    spans.provider.add_span_processor(FailingProcessor())
    app.trace(spans.provider)
    async with app.running():
        assert await (await app.submit(fulfil("1"))).result() == "1"
    assert "could not be exported" in caplog.text


async def test_the_next_task_of_a_convoy_links_to_the_one_before_it(app: App, spans: Spans) -> None:
    tasks = [await app.submit(fulfil(str(number)), convoy="ana") for number in range(3)]
    await asyncio.gather(*(task.result() for task in tasks))
    first, second, third = spans.all("fulfil")
    assert [link.context.span_id for link in second.links] == [id_of(first)]
    assert [link.context.span_id for link in third.links] == [id_of(second)]


async def test_the_link_of_a_convoy_is_kept_for_another_process_and_for_a_task_that_comes_later(
    make_app: Callable[[], App], spans: Spans
) -> None:
    for order in ("1", "2"):
        app = make_app()
        app.trace(spans.provider)
        async with app.running():
            await (await app.submit(fulfil(order), convoy="ana")).result()
    first, second = spans.all("fulfil")
    assert not first.links
    ((trace_id, span_id),) = [(link.context.trace_id, link.context.span_id) for link in second.links]
    assert (trace_id, span_id) == (trace_of(first), id_of(first))


async def test_a_task_that_its_convoy_waited_for_links_once_to_its_earlier_incarnation(app: App, spans: Spans) -> None:
    with pytest.raises(TaskFailed):
        await (await app.submit(fulfil_or_hold("bad"), task_id="1", convoy="ana")).result()
    await app.task("1").resubmit(by="ana", reason="again", arguments={"order": "good"})
    await app.task("1").result()
    first, second = spans.all("fulfil_or_hold")
    assert [link.context.span_id for link in second.links] == [id_of(first)]


async def test_a_resubmitted_task_links_to_its_earlier_incarnation(app: App, spans: Spans) -> None:
    with pytest.raises(TaskCompensated):
        await (await app.submit(fulfil("bad"), task_id="1")).result()
    await app.task("1").resubmit(by="ana", reason="again")
    with pytest.raises(TaskCompensated):
        await app.task("1").result()
    first, second = spans.all("fulfil")
    assert [link.context.span_id for link in second.links] == [id_of(first)]
    assert trace_of(first) == trace_of(second)
    assert len({id_of(span) for span in spans}) == len(list(spans))


async def test_of_two_processes_only_the_one_whose_command_ended_a_thing_tells_its_span(
    make_app: Callable[[], App], spans: Spans
) -> None:
    scheduler, agents = make_app(), make_app()
    mine, theirs = Spans(), Spans()
    scheduler.trace(mine.provider)
    agents.trace(theirs.provider)
    async with scheduler.running(roles=["scheduler", "supervisor"]), agents.running(roles=["agents"]):
        await (await scheduler.submit(fulfil("slow"))).result()
    together = Spans()
    together.exporter.export([*mine, *theirs])
    assert len({id_of(span) for span in together}) == len(list(together)) == 8
    assert together.tree().count("look attempt") == 2
    assert mine.all("fulfil") and theirs.all("look attempt")
    assert not mine.all("look attempt") and not theirs.all("fulfil")


def test_trace_takes_a_provider_and_nothing_else(make_app: Callable[[], App]) -> None:
    with pytest.raises(DefinitionError, match="TracerProvider"):
        make_app().trace("console")  # type: ignore[arg-type]


async def test_a_child_process_gets_the_header_and_its_spans_are_children_of_the_attempt(
    tmp_path: Path, spans: Spans
) -> None:
    app = App("printing", agents=[printer], workflows=[tell], store=f"sqlite:///{tmp_path}/store.db")
    app.trace(spans.provider)
    async with app.running():
        header, current_there = await (await app.submit(tell("1"))).result()
    attempt = spans.one("tell_trace attempt")
    assert current_there == f"{trace_of(attempt):032x}-{id_of(attempt):016x}"
    assert header == f"00-{current_there}-01"


def test_a_submission_from_a_thread_without_an_event_loop_has_its_callers_span_as_parent(
    make_app: Callable[[], App], spans: Spans
) -> None:
    app = make_app()
    app.trace(spans.provider)
    tracer = trace.get_tracer("flask", tracer_provider=spans.provider)
    with app.sync.running() as front:
        with tracer.start_as_current_span("POST /orders") as request:
            task = front.submit(fulfil("1"))
        task.result()
    found = spans.one("fulfil")
    assert found.parent is not None
    assert found.parent.span_id == request.get_span_context().span_id


async def test_without_tracing_an_attempt_and_a_commit_ask_nothing_of_the_tracing_code(
    make_app: Callable[[], App],
) -> None:
    app, calls = make_app(), []

    def count(frame: Any, event: str, _: object) -> None:
        if event == "call" and any(part in frame.f_code.co_filename for part in ("/arriero/tracing/", "trace_context")):
            calls.append(frame.f_code.co_qualname)

    async with app.running():
        sys.setprofile(count)
        try:
            await (await app.submit(fulfil("slow"))).result()
        finally:
            sys.setprofile(None)
    assert calls == []


async def test_a_span_takes_the_form_that_exporters_read_only_when_one_reads_it(
    make_app: Callable[[], App], monkeypatch: pytest.MonkeyPatch
) -> None:
    kept: list[ReadableSpan] = []

    class Keeping(SpanProcessor):
        def on_end(self, span: ReadableSpan) -> None:
            assert span.context is not None and span.context.trace_flags.sampled
            kept.append(span)

    filled: list[ReadableSpan] = []
    fill = TaskSpan.fill
    monkeypatch.setattr(TaskSpan, "fill", lambda span: (filled.append(span), fill(span)))
    provider, app = TracerProvider(), make_app()
    provider.add_span_processor(Keeping())
    app.trace(provider)
    async with app.running():
        await (await app.submit(fulfil("1"))).result()
    assert len(kept) == 7
    assert filled == []
    again = copy.copy(kept[0])
    assert [again.to_json(), *(span.to_json() for span in kept[1:])] == [span.to_json() for span in kept]
    assert len(filled) == 8, "the copy, and each span once"
    assert not hasattr(kept[0], "nonsense")
