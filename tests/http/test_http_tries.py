"""A try surely did not happen only if that is true of all requests that it has sent."""

import asyncio
import socket
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import httpx2
import pytest
from http_callers import Answer, Caller, raised_by, scripted
from raw_server import RawServer, answer, raw_server

from arriero import InDoubt, Permanent, Transient
from arriero.http import EFFECT_FREE, AsyncClient
from arriero.testing import attempt, current


def test_a_redirect_that_was_followed_counts(caller: Callable[..., Caller]) -> None:
    there = httpx2.Response(307, headers={"location": "http://bank/other"})
    for last in (httpx2.Response(429), httpx2.ConnectError("refused"), httpx2.Response(402)):
        with current(attempt()):
            error = raised_by(caller(scripted(there, last), follow_redirects=True))
            assert type(error) is InDoubt
            assert "POST http://bank/charges of the same try may have happened" in str(error)


def test_a_redirect_to_what_cannot_be_called_is_in_doubt(caller: Callable[..., Caller]) -> None:
    for place in ("ftp://bank/other", "http://[", "http://bank/charges"):
        with current(attempt()):
            answers = [httpx2.Response(302, headers={"location": place})] * 30
            assert type(raised_by(caller(scripted(*answers), follow_redirects=True))) is InDoubt


def test_a_second_call_of_the_same_try_counts(caller: Callable[..., Caller]) -> None:
    for first in (httpx2.Response(200), httpx2.Response(500), httpx2.ReadError("cut"), httpx2.Response(302)):
        with current(attempt()):
            call = caller(scripted(first, httpx2.Response(429), httpx2.ConnectError("refused"), httpx2.Response(402)))
            with suppress(InDoubt):
                call()
            assert [type(raised_by(call)) for _ in range(3)] == [InDoubt] * 3
            for url in ("ftp://bank/charges", "http://bank:port/"):
                assert type(raised_by(caller(), url=url)) is InDoubt


def test_a_second_call_may_say_no_after_one_that_surely_did_not_happen(caller: Callable[..., Caller]) -> None:
    call = caller(scripted(httpx2.Response(429), httpx2.ConnectError("refused"), httpx2.Response(402)))
    assert [type(raised_by(call)) for _ in range(3)] == [Transient, Transient, Permanent]


@pytest.mark.parametrize("method", ["GET", "HEAD", "OPTIONS", "TRACE", "get"])
def test_a_read_does_not_count(caller: Callable[..., Caller], method: str) -> None:
    call = caller(scripted(httpx2.Response(200), httpx2.Response(500), httpx2.Response(402)))
    call(method)
    assert type(raised_by(call, method)) is InDoubt
    assert type(raised_by(call)) is Permanent


@pytest.mark.parametrize("header", ["upgrade", "x-http-method-override"])
def test_a_get_that_is_more_than_a_read_counts(caller: Callable[..., Caller], header: str) -> None:
    call = caller(scripted(httpx2.Response(101), httpx2.Response(402)))
    opened = call("GET", headers={header: "websocket"})
    assert opened.request.headers["idempotency-key"] == "test-key"
    assert type(raised_by(call)) is InDoubt


def test_two_clients_in_one_try_know_of_each_other(caller: Callable[..., Caller]) -> None:
    caller(scripted(httpx2.Response(200)))()
    assert type(raised_by(caller(scripted(httpx2.Response(402))))) is InDoubt


def test_a_retry_inside_of_the_step_does_not_remove_the_doubt(caller: Callable[..., Caller]) -> None:
    call = caller(scripted(httpx2.ReadError("cut"), httpx2.Response(429), httpx2.Response(402)))
    assert [type(raised_by(call)) for _ in range(3)] == [InDoubt] * 3


def test_an_auth_flow_that_sends_again_after_a_500_is_in_doubt(caller: Callable[..., Caller]) -> None:
    class Stubborn(httpx2.Auth):
        def auth_flow(self, request: httpx2.Request) -> Any:
            yield request
            yield request

    for last in (httpx2.Response(429), httpx2.ConnectError("refused")):
        with current(attempt()):
            assert type(raised_by(caller(scripted(httpx2.Response(500), last), auth=Stubborn()))) is InDoubt
    with current(attempt()):
        assert (
            type(raised_by(caller(scripted(httpx2.Response(429), httpx2.Response(402)), auth=Stubborn()))) is Permanent
        )


def test_on_a_connection_of_its_own_no_answer_is_taken_for_another_s(caller: Callable[..., Caller]) -> None:
    """The service sent two answers to the first request. The second of them says nothing about the next request."""

    def answer_twice(server: RawServer, connection: socket.socket) -> None:
        server.read(connection)
        ok = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n"
        connection.sendall(ok + b"HTTP/1.1 429 Too Many\r\ncontent-length: 0\r\n\r\n")

    with raw_server(answer_twice, answer(b"")) as server:
        call = caller(limits=httpx2.Limits(max_keepalive_connections=0))
        with current(attempt()):
            call(url=server.url)
        with current(attempt()):
            assert type(raised_by(call, url=server.url)) is InDoubt


def test_a_post_that_is_marked_as_free_of_effects_does_not_count(caller: Callable[..., Caller]) -> None:
    call = caller(scripted(httpx2.Response(200), httpx2.Response(402)))
    found = call(url="http://bank/search", extensions=EFFECT_FREE)
    assert "idempotency-key" not in found.request.headers
    assert type(raised_by(call)) is Permanent
    assert dict(EFFECT_FREE) == {"arriero_effect_free": True}


class Login(httpx2.Auth):
    """Asks for a token before the request, and again once after a 401. ``extensions``: of the requests for tokens."""

    def __init__(self, extensions: Any = None) -> None:
        self._extensions = extensions

    def auth_flow(self, request: httpx2.Request) -> Any:
        for _ in range(2):
            yield httpx2.Request("POST", "http://bank/token", extensions=self._extensions)
            response = yield request
            if response.status_code != 401:
                return


def test_what_an_auth_flow_sends_counts_unless_it_is_marked(caller: Callable[..., Caller]) -> None:
    ok, no, refused = httpx2.Response(200), httpx2.Response(401), httpx2.Response(402)
    for extensions, kind in ((None, InDoubt), (dict(EFFECT_FREE), Permanent)):
        with current(attempt()):
            assert type(raised_by(caller(scripted(ok, no, ok, refused), auth=Login(extensions)))) is kind
        with current(attempt()):
            cut = scripted(ok, httpx2.Response(500), refused)
            assert type(raised_by(caller(cut, auth=Login(extensions)))) is InDoubt
    with current(attempt()):
        assert type(raised_by(caller(scripted(ok, no, httpx2.ConnectError("refused")), auth=Login()))) is InDoubt


def test_a_request_of_an_auth_flow_carries_no_key_but_waits_as_long_as_there_is_time(
    caller: Callable[..., Caller],
) -> None:
    sent: list[httpx2.Request] = []

    def handle(request: httpx2.Request) -> httpx2.Response:
        sent.append(request)
        return httpx2.Response(200)

    caller(handle, auth=Login())()
    assert ["idempotency-key" in request.headers for request in sent] == [False, True]
    assert [request.extensions["timeout"]["read"] for request in sent] == [5.0, 5.0]


def hooked(caller: Callable[..., Caller], answering: Answer, **hooks: Any) -> Caller:
    """A client with hooks of the user's, set after its first call, so that ours have to be put in their places again."""
    call = caller(answering)
    call("GET")
    is_async = isinstance(call.client, AsyncClient)

    def as_needed(hook: Any) -> Any:
        async def hook_async(given: Any) -> None:
            hook(given)

        return hook_async if is_async else hook

    for kind, hook in hooks.items():
        call.client.event_hooks[kind].append(as_needed(hook))
        call.client.event_hooks[kind].insert(0, as_needed(hook))
    return call


def test_a_request_that_was_sent_without_our_hooks_counts(caller: Callable[..., Caller]) -> None:
    """A hook that removes all hooks stands for another thread that sets others meanwhile."""
    call = caller(scripted(httpx2.Response(200), httpx2.Response(200), httpx2.Response(429), httpx2.Response(402)))
    is_async = isinstance(call.client, AsyncClient)

    def remove(request: httpx2.Request) -> None:
        call.client.event_hooks["request"].clear()

    async def remove_async(request: httpx2.Request) -> None:
        remove(request)

    call("GET")
    call.client.event_hooks["request"].insert(0, remove_async if is_async else remove)
    call()
    assert [type(raised_by(call)) for _ in range(2)] == [InDoubt] * 2


def test_a_hook_that_fails_after_the_answer_is_in_doubt(caller: Callable[..., Caller]) -> None:
    def fail(response: httpx2.Response) -> None:
        if response.request.method == "POST":
            raise httpx2.ConnectError("the log could not be reached", request=response.request)

    ok = httpx2.Response(200)
    assert type(raised_by(hooked(caller, scripted(ok, ok), response=fail))) is InDoubt


def test_a_hook_that_fails_before_the_request_is_sent_says_nothing_about_it(caller: Callable[..., Caller]) -> None:
    def fail(request: httpx2.Request) -> None:
        if request.method == "POST":
            raise httpx2.ConnectError("the log could not be reached", request=request)

    assert type(raised_by(hooked(caller, scripted(httpx2.Response(200)), request=fail))) is InDoubt

    def fail_for_a_url(request: httpx2.Request) -> None:
        if request.method == "POST":
            raise httpx2.UnsupportedProtocol("the log has a wrong URL", request=request)

    with current(attempt()):
        assert type(raised_by(hooked(caller, scripted(httpx2.Response(200)), request=fail_for_a_url))) is InDoubt


def test_a_call_that_runs_beside_another_one_counts() -> None:
    async def run() -> tuple[type, type]:
        is_sent, may_answer = asyncio.Event(), asyncio.Event()

        async def handle(request: httpx2.Request) -> httpx2.Response:
            if request.url.path == "/slow":
                is_sent.set()
                await may_answer.wait()
                return httpx2.Response(402)
            return httpx2.Response(429)

        async with AsyncClient(transport=httpx2.MockTransport(handle), base_url="http://bank") as client:
            slow = asyncio.create_task(client.post("/slow"))
            await is_sent.wait()
            beside = asyncio.create_task(client.post("/fast"))
            await asyncio.wait([beside])
            may_answer.set()
            await asyncio.wait([slow])
            return type(beside.exception()), type(slow.exception())

    with current(attempt()):
        assert asyncio.run(run()) == (InDoubt, Permanent)
