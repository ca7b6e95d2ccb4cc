"""What a step raises for each answer and each error, on real sockets and with transports of httpx2."""

import asyncio
import gzip
import json
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any

import httpx2
import pytest
from http_callers import Caller, raised_by, scripted
from raw_server import RawServer, answer, find_refusing_port, raw_server
from waiting import HANGS_AFTER_SECONDS

from arriero import InDoubt, Permanent, StepError, Transient
from arriero.http import AsyncClient
from arriero.testing import attempt, current


# --- the table
@pytest.mark.parametrize(
    ("status", "headers", "kind"),
    [
        (408, {}, Transient),
        (425, {}, Transient),
        (429, {}, Transient),
        (429, {"retry-after": "7"}, Transient),
        (503, {"retry-after": "7"}, Transient),
        (503, {}, InDoubt),
        (503, {"retry-after": "soon"}, InDoubt),
        (503, {"retry-after": "-7"}, InDoubt),
        (500, {"retry-after": "7"}, InDoubt),
        (502, {}, InDoubt),
        (504, {}, InDoubt),
        (599, {}, InDoubt),
        (400, {}, Permanent),
        (402, {}, Permanent),
        (409, {}, Permanent),
        (499, {}, Permanent),
        (100, {}, InDoubt),
        (103, {}, InDoubt),
        (301, {"location": "/other"}, InDoubt),
        (302, {"location": "/login"}, InDoubt),
        (303, {"location": "/other"}, InDoubt),
        (307, {"location": "/other"}, InDoubt),
        (308, {}, InDoubt),
        (600, {}, InDoubt),
        (999, {}, InDoubt),
    ],
)
def test_a_status_means_what_the_table_says(
    caller: Callable[..., Caller], status: int, headers: dict[str, str], kind: type[StepError]
) -> None:
    error = raised_by(caller(lambda request: httpx2.Response(status, headers=headers)))
    assert (type(error), error.code, error.details) == (kind, str(status), {"status": status})


@pytest.mark.parametrize(
    ("location", "shown"),
    [
        ("http://user:secret@bank/other?token=secret#secret", "was answered 302 Found to http://bank/other"),
        ("http://bank:port/?secret", "was answered 302 Found to a place"),
    ],
)
def test_a_redirect_is_told_without_what_must_stay_secret(
    caller: Callable[..., Caller], location: str, shown: str
) -> None:
    error = raised_by(caller(lambda request: httpx2.Response(302, headers={"location": location})))
    # httpx2 before 2.16.1 reads the location in any case, and raises: then the try is in doubt.
    assert shown in str(error) or ("bank:port" in location and "Invalid port: 'port'" in str(error))
    assert "secret" not in str(error)


@pytest.mark.parametrize("status", [101, 200, 201, 202, 204, 206, 226, 304])
def test_an_answer_is_returned(caller: Callable[..., Caller], status: int) -> None:
    assert caller(lambda request: httpx2.Response(status))().status_code == status


@pytest.mark.parametrize(
    ("status", "retry_after", "wait", "unavailable"),
    [
        (429, "7", 7.0, True),
        (503, "7", 7.0, True),
        (503, "1.5", 1.5, True),
        (503, "0", 0.0, False),
        (503, "9" * 5000, 366 * 86_400.0, True),
        (429, "-7", None, False),
        (429, "soon", None, False),
        (429, "", None, False),
        (429, "٣", None, False),
        (408, "7", 7.0, False),
        (503, "Tue, 24 Nov 2026 12:00:30 GMT", 30.0, True),
        (503, "Tue, 24 Nov 2026 11:00:00 GMT", 0.0, False),
        (503, "Fri, 31 Dec 9999 23:59:59 GMT", 366 * 86_400.0, True),
        (429, "Tue, 99 Nov 2026 12:00:30 GMT", None, False),
        (429, "Tue, 24 Nov 99999999999 12:00:30 GMT", None, False),
    ],
)
def test_retry_after_is_read_as_seconds_or_as_a_date_of_the_services_clock(
    caller: Callable[..., Caller], status: int, retry_after: str, wait: float | None, unavailable: bool
) -> None:
    headers = [
        (b"date", b"Tue, 24 Nov 2026 12:00:00 GMT"),
        (b"retry-after", retry_after.encode()),
    ]
    error = raised_by(caller(lambda request: httpx2.Response(status, headers=headers)))
    assert isinstance(error, Transient)
    assert (error.retry_after, error.unavailable) == (wait, unavailable)


def test_a_service_may_mean_something_else_by_a_status(caller: Callable[..., Caller]) -> None:
    meanings = {409: "transient", 404: "answer", 402: "in_doubt", 500: "permanent"}
    call = caller(scripted(*(httpx2.Response(status) for status in (409, 402, 500, 404))), meanings=meanings)
    with current(attempt()):
        assert type(raised_by(call)) is Transient
    with current(attempt()):
        assert type(raised_by(call)) is InDoubt
    with current(attempt()):
        assert type(raised_by(call)) is Permanent
    assert call().status_code == 404


# --- real sockets
def test_a_refused_connection_surely_did_not_happen(caller: Callable[..., Caller]) -> None:
    error = raised_by(caller(), url=f"http://127.0.0.1:{find_refusing_port()}/charges?secret=1")
    assert (type(error), error.code) == (Transient, "unreachable")
    assert "secret" not in str(error)


def test_a_proxy_that_cannot_be_reached_surely_sent_nothing(caller: Callable[..., Caller]) -> None:
    proxied = caller(proxy=f"http://127.0.0.1:{find_refusing_port()}")
    assert type(raised_by(proxied, url="http://bank.example/charges")) is Transient


def test_a_proxy_that_refuses_a_tunnel_surely_sent_nothing(caller: Callable[..., Caller]) -> None:
    with raw_server(answer(b"HTTP/1.1 502 Bad Gateway\r\n\r\n")) as server:
        error = raised_by(caller(proxy=server.url), url="https://bank.example/charges")
        assert type(error) is Transient
        assert server.received[0].startswith(b"CONNECT bank.example:443")


def test_a_proxy_that_answers_for_the_service_is_in_doubt(caller: Callable[..., Caller]) -> None:
    with raw_server(answer(b"HTTP/1.1 502 Bad Gateway\r\ncontent-length: 0\r\n\r\n")) as server:
        assert type(raised_by(caller(proxy=server.url), url="http://bank.example/charges")) is InDoubt


def test_a_tls_handshake_that_fails_surely_sent_nothing(caller: Callable[..., Caller]) -> None:
    def plain_text(server: RawServer, connection: socket.socket) -> None:
        connection.recv(1)
        connection.sendall(b"this is no TLS\r\n")

    with raw_server(plain_text) as server:
        error = raised_by(caller(), url=server.url.replace("http:", "https:"))
        assert (type(error), error.code) == (Transient, "unreachable")


def close_at_once(server: RawServer, connection: socket.socket) -> None:
    """Close before anything is read."""


def close_after_reading(server: RawServer, connection: socket.socket) -> None:
    server.read(connection)


def reset_after_reading(server: RawServer, connection: socket.socket) -> None:
    server.read(connection)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")


@pytest.mark.parametrize(
    "script",
    [
        close_at_once,
        close_after_reading,
        reset_after_reading,
        answer(b"HTTP/1.1 20"),
        answer(b"HTTP/1.1 201 Created\r\ncontent-le"),
        answer(b"HTTP/1.1 201 Created\r\ncontent-length: 10\r\n\r\nhalf"),
        answer(b"HTTP/1.1 201 Created\r\ntransfer-encoding: chunked\r\n\r\n4\r\nhalf\r\n"),
        answer(b"HTTP/1.1 201 Created\r\ncontent-encoding: gzip\r\ncontent-length: 4\r\n\r\nhalf"),
        answer(b"this is no HTTP\r\n\r\n"),
        answer(b"HTTP/1.1 429\0 Too Many\r\n\r\n"),
        answer(b"HTTP/1.1 4290 Too Many\r\n\r\n"),
        answer(b"HTTP/1.1 100 Continue\r\n\r\n"),
        answer(b"HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 50"),
        answer(b"HTTP/1.1 500 No\r\ncontent-length: 0\r\n\r\n"),
    ],
)
def test_a_connection_that_ends_after_it_was_made_is_in_doubt(caller: Callable[..., Caller], script: Any) -> None:
    with raw_server(script) as server:
        assert type(raised_by(caller(), url=server.url, json={"pence": 1})) is InDoubt


def test_an_answer_too_late_is_in_doubt(caller: Callable[..., Caller]) -> None:
    over = threading.Event()

    def stay_silent(server: RawServer, connection: socket.socket) -> None:
        server.read(connection)
        over.wait(HANGS_AFTER_SECONDS)

    with raw_server(stay_silent) as server:
        error = raised_by(caller(timeout=0.05), url=server.url)
        assert type(error) is InDoubt
        assert "ReadTimeout" in str(error)
        over.set()


def test_an_error_whose_body_is_cut_or_endless_is_told_by_its_status(caller: Callable[..., Caller]) -> None:
    over = threading.Event()

    def pour(server: RawServer, connection: socket.socket) -> None:
        server.read(connection)
        connection.sendall(b"HTTP/1.1 402 No\r\ncontent-type: application/json\r\n\r\n")
        while not over.is_set():
            connection.sendall(b"x" * 65536)

    cut = answer(b"HTTP/1.1 429 No\r\ncontent-type: application/json\r\ncontent-length: 99\r\n\r\n{")
    with raw_server(cut, pour) as server:
        assert type(raised_by(caller(), url=server.url)) is Transient
        assert type(raised_by(caller(), url=server.url)) is Permanent
        over.set()


def test_an_error_whose_body_does_not_come_is_told_by_its_status(caller: Callable[..., Caller]) -> None:
    over, ended = threading.Event(), threading.Event()

    def stop(server: RawServer, connection: socket.socket) -> None:
        server.read(connection)
        connection.sendall(b"HTTP/1.1 402 No\r\ncontent-type: application/json\r\ncontent-length: 9\r\n\r\n{")
        over.wait(HANGS_AFTER_SECONDS)
        ended.set()

    with raw_server(stop) as server, current(attempt(remaining=10 * HANGS_AFTER_SECONDS)):
        assert type(raised_by(caller(), url=server.url)) is Permanent
        assert not ended.is_set()  # it does not wait until the server ends the answer
        over.set()


def test_an_error_that_came_before_the_whole_request_was_sent_counts(caller: Callable[..., Caller]) -> None:
    with raw_server(answer(b"HTTP/1.1 413 Too Large\r\nconnection: close\r\ncontent-length: 0\r\n\r\n")) as server:
        assert type(raised_by(caller(), url=server.url, content=b"x" * 100_000)) is Permanent


# --- transports
@pytest.mark.parametrize("error", [httpx2.ConnectTimeout("late"), httpx2.PoolTimeout("full"), httpx2.ProxyError("407")])
def test_what_never_got_a_connection_surely_did_not_happen(caller: Callable[..., Caller], error: Exception) -> None:
    assert type(raised_by(caller(scripted(error)))) is Transient


@pytest.mark.parametrize(
    "error",
    [
        httpx2.ReadTimeout("late"),
        httpx2.WriteTimeout("late"),
        httpx2.ReadError("cut"),
        httpx2.WriteError("cut"),
        httpx2.CloseError("cut"),
        httpx2.RemoteProtocolError("<ConnectionTerminated error_code:0, last_stream_id:1>"),  # GOAWAY of HTTP/2
        httpx2.LocalProtocolError("no such header"),
        httpx2.DecodingError("no gzip"),
    ],
)
def test_any_other_error_of_a_transport_is_in_doubt(caller: Callable[..., Caller], error: Exception) -> None:
    assert type(raised_by(caller(scripted(error)))) is InDoubt


def test_a_url_that_cannot_be_called_never_happens(caller: Callable[..., Caller]) -> None:
    for url in ("ftp://bank.example/charges", "/charges", "http:///charges", "http://bank:port/"):
        error = raised_by(caller(), url=url)
        assert (type(error), error.code) == (Permanent, "bad_url")


def test_a_transport_of_the_users_is_not_believed_unless_it_sends_once(caller: Callable[..., Caller]) -> None:
    """It sends again after a lost answer, and tells only of the second sending."""

    class Retrying(httpx2.MockTransport):
        def handle_request(self, request: httpx2.Request) -> httpx2.Response:
            try:
                return super().handle_request(request)
            except httpx2.ReadError:
                return super().handle_request(request)

        async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
            try:
                return await super().handle_async_request(request)
            except httpx2.ReadError:
                return await super().handle_async_request(request)

    for last in (httpx2.ConnectError("refused"), httpx2.Response(429), httpx2.Response(402)):
        lost = Retrying(scripted(httpx2.ReadError("cut"), last))
        assert type(raised_by(caller(transport=lost))) is InDoubt
        with current(attempt()):
            assert type(raised_by(caller(mounts={"all://": Retrying(scripted(last))}))) is InDoubt
    with current(attempt()):
        once = Retrying(scripted(httpx2.Response(429)))
        assert type(raised_by(caller(transport=once, sends_once=True))) is Transient


def test_an_app_in_this_process_answers_but_its_own_errors_are_in_doubt() -> None:
    async def service(scope: Any, receive: Any, send: Any) -> None:
        if scope["path"] == "/broken":
            raise httpx2.ConnectError("the service could not reach its own database")
        await send({"type": "http.response.start", "status": 402, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    async def call() -> None:
        async with AsyncClient(transport=httpx2.ASGITransport(service), base_url="http://bank") as client:
            with pytest.raises(Permanent):
                await client.post("/charges")
            with pytest.raises(InDoubt):
                await client.post("/broken")

    with current(attempt()):
        asyncio.run(call())


def test_a_body_whose_making_fails_like_a_connection_is_in_doubt(caller: Callable[..., Caller]) -> None:
    """The head of the request was sent; a second client, which makes the body, got no connection."""
    call = caller()
    is_async = isinstance(call.client, AsyncClient)

    def parts() -> Iterator[bytes]:
        yield b"half"
        raise httpx2.ConnectError("the source of the body")

    async def parts_async() -> Any:
        for part in parts():
            yield part

    with raw_server(close_after_reading) as server:
        error = raised_by(call, url=server.url, content=parts_async() if is_async else parts())
        assert type(error) is InDoubt


# --- bodies of errors
def test_a_failure_has_the_code_and_the_words_of_the_service(caller: Callable[..., Caller]) -> None:
    call = caller(lambda request: httpx2.Response(402, json={"code": "declined", "detail": "no money"}))
    error = raised_by(call)
    assert (error.code, error.details) == ("declined", {"status": 402})
    assert str(error) == "POST http://bank/charges was answered 402 Payment Required: no money"


def test_a_body_in_gzip_is_read_and_one_that_unpacks_to_too_much_is_not(caller: Callable[..., Caller]) -> None:
    def packed(body: bytes) -> bytes:
        data = gzip.compress(body)
        head = "HTTP/1.1 402 No\r\ncontent-type: application/json\r\ncontent-encoding: gzip\r\ncontent-length: "
        return f"{head}{len(data)}\r\nconnection: close\r\n\r\n".encode() + data

    long = json.dumps({"code": "long", "x": "x" * 10_000_000}).encode()
    with raw_server(answer(packed(b'{"code": "declined"}')), answer(packed(long))) as server:
        assert raised_by(caller(), url=server.url).code == "declined"
        assert raised_by(caller(), url=server.url).code == "402"


@pytest.mark.parametrize("body", ["[" * 100_000, "[]", '"no"', "{", '{"code": true}', '{"code": {}}', '{"detail": 7}'])
def test_a_body_that_is_no_object_is_left_aside(caller: Callable[..., Caller], body: str) -> None:
    headers = {"content-type": "application/json"}
    error = raised_by(caller(lambda request: httpx2.Response(402, headers=headers, content=body.encode())))
    assert (type(error), error.code) == (Permanent, "402")
