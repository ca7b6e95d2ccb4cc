"""The clients for steps: what they send, how long they wait, and what a step raises for each answer."""

import asyncio
import json
import re
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import pytest
from runtime_world import Machine, within

from arriero import Agent, Attempt, InvalidInput, Permanent, TaskFailed, Transient, Undo, workflow
from arriero.http import AsyncClient, Client, InDoubt
from arriero.testing import attempt, current, undo

Answer = Callable[[httpx2.Request], httpx2.Response]


def answering(answer: Answer, **options: Any) -> Client:
    return Client(transport=httpx2.MockTransport(answer), base_url="http://bank", **options)


def call(answer: Answer, method: str = "POST", url: str = "/charges", **options: Any) -> httpx2.Response:
    """A call of the plain client in an attempt."""
    with answering(answer, **options) as client, current(attempt(task_id="o-1", idempotency_key="k-1", remaining=7.0)):
        return client.request(method, url)


async def call_async(answer: Answer, method: str = "POST", url: str = "/charges", **options: Any) -> httpx2.Response:
    """The same call of the async client."""
    transport = httpx2.MockTransport(answer)
    async with AsyncClient(transport=transport, base_url="http://bank", **options) as client:
        with current(attempt(task_id="o-1", idempotency_key="k-1", remaining=7.0)):
            return await client.request(method, url)


def call_either(is_async: bool, answer: Answer, **options: Any) -> httpx2.Response:
    return asyncio.run(call_async(answer, **options)) if is_async else call(answer, **options)


either = pytest.mark.parametrize("is_async", [False, True], ids=["plain", "async"])


# --- what is sent
@either
def test_a_call_carries_the_key_the_task_and_the_trace(is_async: bool) -> None:
    sent: list[httpx2.Request] = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        sent.append(request)
        return httpx2.Response(201)

    for _ in range(2):
        assert call_either(is_async, answer).status_code == 201
    assert [request.headers["idempotency-key"] for request in sent] == ["k-1", "k-1"]
    assert [request.headers["arriero-task"] for request in sent] == ["o-1", "o-1"]
    first, second = (request.headers["traceparent"] for request in sent)
    assert re.fullmatch("00-[0-9a-f]{32}-[0-9a-f]{16}-01", first)
    assert first.split("-")[1] == second.split("-")[1]  # one trace for the task
    assert first.split("-")[2] != second.split("-")[2]


@either
def test_a_call_that_changes_nothing_carries_no_key(is_async: bool) -> None:
    sent: list[httpx2.Request] = []
    call_either(is_async, lambda request: sent.append(request) or httpx2.Response(200), method="GET")  # type: ignore[func-returns-value]
    assert "idempotency-key" not in sent[0].headers
    assert sent[0].headers["arriero-task"] == "o-1"


def test_headers_of_the_calls_own_stay_and_the_trace_may_be_left_out() -> None:
    sent: list[httpx2.Request] = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        sent.append(request)
        return httpx2.Response(200)

    with answering(answer, headers={"Idempotency-Key": "mine", "traceparent": "theirs"}) as client, current(attempt()):
        client.post("/charges")
    call(answer, trace=False)
    assert (sent[0].headers["idempotency-key"], sent[0].headers["traceparent"]) == ("mine", "theirs")
    assert "traceparent" not in sent[1].headers


@either
def test_a_call_waits_as_long_as_the_attempt_has_time_and_a_shorter_time_out_counts(is_async: bool) -> None:
    waits: list[float] = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        waits.append(request.extensions["timeout"]["read"])
        return httpx2.Response(200)

    call_either(is_async, answer)
    call_either(is_async, answer, timeout=2.0)
    call_either(is_async, answer, timeout=60.0)
    call_either(is_async, answer, timeout=None)
    assert waits == [7.0, 2.0, 7.0, 7.0]


@either
def test_without_time_left_nothing_is_sent(is_async: bool) -> None:
    sent: list[httpx2.Request] = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        sent.append(request)
        return httpx2.Response(200)

    async def late() -> None:
        async with AsyncClient(transport=httpx2.MockTransport(answer)) as client:
            await client.post("http://bank/charges")

    with current(attempt(remaining=0.0)), pytest.raises(Transient, match="no time was left to send it") as raised:
        if is_async:
            asyncio.run(late())
        else:
            answering(answer).post("/charges")
    assert (raised.value.code, sent) == ("no_time_left", [])


def test_outside_of_an_attempt_it_is_a_plain_client() -> None:
    def answer(request: httpx2.Request) -> httpx2.Response:
        assert not {"idempotency-key", "arriero-task", "traceparent"} & set(request.headers)
        return httpx2.Response(500)

    with answering(answer) as client:
        assert client.post("/login").status_code == 500


# --- what comes back
@either
@pytest.mark.parametrize(
    ("status", "headers", "error"),
    [
        (400, {}, Permanent),
        (404, {}, Permanent),
        (409, {}, Permanent),
        (408, {}, Transient),
        (425, {}, Transient),
        (429, {"Retry-After": "3"}, Transient),
        (503, {"Retry-After": "3"}, Transient),
        (503, {}, InDoubt),
        (500, {}, InDoubt),
        (502, {}, InDoubt),
        (504, {"Retry-After": "3"}, InDoubt),
    ],
)
def test_an_error_is_raised_as_what_it_means(
    is_async: bool, status: int, headers: dict[str, str], error: type[Exception]
) -> None:
    with pytest.raises(error, match=rf"^POST http://bank/charges was answered {status} \w+") as raised:
        call_either(is_async, lambda _: httpx2.Response(status, headers=headers))
    if isinstance(raised.value, Permanent | Transient):
        assert (raised.value.code, raised.value.details) == (str(status), {"status": status})
    if isinstance(raised.value, InDoubt):
        assert raised.value.status == status
    if isinstance(raised.value, Transient):
        assert raised.value.retry_after == (3.0 if headers else None)


@either
@pytest.mark.parametrize("name", ["message", "detail", "title", "error"])
def test_the_services_own_code_and_words_are_kept(is_async: bool, name: str) -> None:
    body = {"code": "declined", name: "no money"}
    with pytest.raises(Permanent, match="was answered 402 Payment Required: no money$") as raised:
        call_either(is_async, lambda _: httpx2.Response(402, json=body))
    assert raised.value.code == "declined"


@pytest.mark.parametrize(
    "content", [b"{", b"[1]", b'{"message": 3, "code": null}', b'"no"', b"\xff", b"[" * 100_000, b""]
)
def test_an_error_whose_body_is_not_as_expected_says_its_status(content: bytes) -> None:
    answer = httpx2.Response(402, content=content, headers={"Content-Type": "application/json"})
    with pytest.raises(Permanent, match="^POST http://bank/charges was answered 402 Payment Required$") as raised:
        call(lambda _: answer)
    assert raised.value.code == "402"


def test_a_query_and_a_password_do_not_get_into_the_history() -> None:
    with pytest.raises(Permanent) as raised:
        call(lambda _: httpx2.Response(404), url="http://ana:s3cret@bank/cards?number=4111#x")
    assert str(raised.value) == "GET http://bank/cards was answered 404 Not Found".replace("GET", "POST")


def test_a_service_may_mean_something_else() -> None:
    meanings = {404: "answer", 409: "transient", 500: "permanent", 200: "in_doubt"}
    assert call(lambda _: httpx2.Response(404), meanings=meanings).status_code == 404
    for status, error in ((409, Transient), (500, Permanent), (200, InDoubt)):
        with pytest.raises(error):
            call(lambda _, status=status: httpx2.Response(status), meanings=meanings)  # type: ignore[misc]
    with pytest.raises(InvalidInput, match="meanings"):
        Client(meanings={404: "fine"})


@either
@pytest.mark.parametrize(
    ("failure", "error", "code"),
    [
        (httpx2.ConnectError("refused"), Transient, "unreachable"),
        (httpx2.ConnectTimeout("slow"), Transient, "unreachable"),
        (httpx2.PoolTimeout("busy"), Transient, "unreachable"),
        (httpx2.UnsupportedProtocol("ftp"), Permanent, "bad_url"),
        (httpx2.ReadTimeout("slow"), InDoubt, None),
        (httpx2.ReadError("cut"), InDoubt, None),
        (httpx2.WriteError("cut"), InDoubt, None),
        (httpx2.RemoteProtocolError("Server disconnected"), InDoubt, None),
        (httpx2.TooManyRedirects("round"), InDoubt, None),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else "",
)
def test_a_call_without_an_answer_is_raised_as_what_it_means(
    is_async: bool, failure: Exception, error: type[Exception], code: str | None
) -> None:
    def answer(_: httpx2.Request) -> httpx2.Response:
        raise failure

    with pytest.raises(error, match=rf"^POST http://bank/charges: {type(failure).__name__}: ") as raised:
        call_either(is_async, answer)
    assert raised.value.__cause__ is failure
    assert getattr(raised.value, "code", None) == code


@either
def test_a_streamed_answer_is_judged_before_the_step_reads_it(is_async: bool) -> None:
    async def stream_async() -> None:
        transport = httpx2.MockTransport(lambda _: httpx2.Response(402))
        async with AsyncClient(transport=transport) as client, client.stream("POST", "http://bank/charges"):
            raise AssertionError("it was let in")

    def stream() -> None:
        with answering(lambda _: httpx2.Response(402)) as client, client.stream("POST", "/charges"):
            raise AssertionError("it was let in")

    with current(undo(None, outcome="unknown")), pytest.raises(Permanent):
        asyncio.run(stream_async()) if is_async else stream()


# --- in a running App, with a real service
@asynccontextmanager
async def bank(*answers: bytes | None) -> AsyncIterator[tuple[str, list[str]]]:
    """A service that gives these answers in turn, None: it cuts the connection. Its address, and the keys it was sent."""
    keys: list[str] = []
    left = iter(answers)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
        keys.extend(re.findall("idempotency-key: (.+)\r", head))
        if (answer := next(left)) is not None:
            writer.write(answer)
            await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", keys


def written(status: str, body: object) -> bytes:
    text = json.dumps(body)
    return (
        f"HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {len(text)}\r\n"
        f"Retry-After: 0\r\nConnection: close\r\n\r\n{text}"
    ).encode()


def payments(url: str, is_async: bool) -> Agent:
    agent = Agent("payments")
    if is_async:

        @agent.resource
        async def client() -> AsyncIterator[AsyncClient]:
            async with AsyncClient(base_url=url, trust_env=False) as opened:
                yield opened

        @agent.step
        async def charge(attempt: Attempt, pence: int) -> str:
            answer = await client().post("/charges", json={"pence": pence})
            return str(answer.json()["receipt"])

        @charge.compensation
        async def refund(undo: Undo[str], pence: int) -> None:
            await client().post("/refunds", json={"key": undo.forward_key})
    else:

        @agent.resource
        def plain_client() -> Iterator[Client]:
            with Client(base_url=url, trust_env=False) as opened:
                yield opened

        @agent.step(name="charge")
        def charge_plainly(attempt: Attempt, pence: int) -> str:
            return str(plain_client().post("/charges", json={"pence": pence}).json()["receipt"])

        @charge_plainly.compensation
        def refund_plainly(undo: Undo[str], pence: int) -> None:
            plain_client().post("/refunds", json={"key": undo.forward_key})

    return agent


@either
async def test_a_step_is_tried_again_under_one_key_until_the_service_has_answered(
    machine: Machine, is_async: bool
) -> None:
    done = written("200 OK", {"receipt": "r-1"})
    async with bank(None, written("503 Service Unavailable", {}), written("500 Oh", {}), done) as (url, keys):
        agent = payments(url, is_async)

        @workflow
        async def sell() -> str:
            return await agent.steps["charge"](100)

        app = machine.app([agent], [sell])
        async with app.running():
            assert await within((await app.submit(sell())).result()) == "r-1"
    assert (len(keys), len(set(keys))) == (4, 1)


@either
async def test_what_the_service_refuses_for_good_ends_the_task_with_its_code(machine: Machine, is_async: bool) -> None:
    async with bank(written("402 Payment Required", {"code": "declined", "message": "no money"})) as (url, keys):
        agent = payments(url, is_async)

        @workflow
        async def sell() -> str:
            return await agent.steps["charge"](100)

        app = machine.app([agent], [sell])
        async with app.running():
            task = await app.submit(sell())
            with pytest.raises(TaskFailed, match="no money"):
                await within(task.result())
            (step,) = (await task.view()).steps
    assert step.failure is not None
    assert (step.failure.code, step.in_doubt, len(keys)) == ("declined", False, 1)


async def test_a_service_that_is_not_there_was_surely_not_asked(machine: Machine) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        url = f"http://127.0.0.1:{closed.getsockname()[1]}"
    async with AsyncClient(base_url=url, trust_env=False) as client:
        with current(attempt()), pytest.raises(Transient, match="unreachable|ConnectError") as raised:
            await client.post("/charges")
    assert raised.value.code == "unreachable"
