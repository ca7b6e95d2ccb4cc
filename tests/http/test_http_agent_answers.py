"""Answers of a program that arriero calls, which are no result or are made to do harm."""

import asyncio
import gzip
from collections.abc import AsyncIterator

import httpx2
import pytest
from pushed_program import Answer, program, shipped, shipping_app
from runtime_world import Machine

from arriero.http import HttpAgent

BODY = b'{"number":"B-1"}'
WHOLE = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 16\r\n\r\n" + BODY


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ((200, {}, b'{"number":"B-1","number":"B-2"}'), "unknown bad_answer"),
        ((200, {}, b'{"number":"\\u0000"}'), "unknown bad_answer"),
        ((200, {}, b'{"number":"\\ud800"}'), "unknown bad_answer"),
        ((200, {}, b'{"number":NaN}'), "unknown bad_answer"),
        ((200, {}, b"\xff\xfe"), "unknown bad_answer"),
        ((200, {}, b"[" * 101 + b"]" * 101), "unknown bad_answer"),
        ((200, {}, b"[" * 100_000 + b"]" * 100_000), "unknown bad_answer"),
        ((200, {}, b"<html>Log in</html>"), "unknown bad_answer"),
        ((200, {}, b'"' + b"x" * 1_000_000 + b'"'), "unknown bad_answer"),
        ((200, {"Content-Encoding": "gzip"}, gzip.compress(BODY)), "unknown bad_answer"),
        ((200, {"Content-Encoding": "gzip, gzip"}, gzip.compress(gzip.compress(b" " * 10_000_000))), "unknown bad_answer"),
        ((304, {}, b""), "unknown 304"),
        (b"HTTP/1.1 101 X\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n", "unknown "),
        (b"no HTTP\r\n\r\n", "unknown "),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n12", "unknown "),
    ],
    ids=["two keys", "NUL", "surrogate", "NaN", "no UTF-8", "deep", "very deep", "HTML", "long", "gzip", "bomb", "304", "101", "no HTTP",
         "two lengths"],
)  # fmt: skip
async def test_an_answer_that_is_no_result_leaves_the_step_in_doubt(
    machine: Machine, answer: Answer, said: str
) -> None:
    async with program() as called:
        called.answers = [answer]
        app = shipping_app(machine, called.url)
        async with app.running():
            assert await shipped(app) == said
        assert len(called.requests) == 4
        assert called.requests[0][0]["accept-encoding"] == "identity"
    await machine.check()


@pytest.mark.parametrize("sent", [0, 1, 12, 16, 40, len(WHOLE) - len(BODY), len(WHOLE) - 1])
async def test_an_answer_that_is_cut_leaves_the_step_in_doubt(machine: Machine, sent: int) -> None:
    async with program() as called:
        called.answers = [WHOLE[:sent]]
        app = shipping_app(machine, called.url)
        async with app.running():
            assert await shipped(app) == "unknown "
        assert len({headers["idempotency-key"] for headers, _ in called.requests}) == 1


@pytest.mark.parametrize(
    ("head", "body", "is_whole"),
    [
        (b"HTTP/1.0 200 OK\r\n\r\n", b"12", False),  # of 1234?
        (b"HTTP/1.1 200 OK\r\n\r\n", b"", False),
        (b"HTTP/1.0 200 OK\r\n\r\n", b'{"number":"B-1"}\n', True),
        (b"HTTP/1.0 200 OK\r\n\r\n", b"null", True),
        (b"HTTP/1.1 204 No Content\r\n\r\n", b"", True),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n", b"12", True),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n", b"12\r\n0\r\n\r\n", True),
    ],
)
async def test_an_answer_that_ends_with_its_connection_counts_only_if_it_is_surely_whole(
    machine: Machine, head: bytes, body: bytes, is_whole: bool
) -> None:
    async with program() as called:
        called.answers = [head + body]
        app = shipping_app(machine, called.url)
        async with app.running():
            said = await shipped(app, "ship_anything")
        assert said == ("done" if is_whole else "unknown bad_answer")


async def test_other_tasks_have_their_turns_while_an_answer_is_read() -> None:
    async def arrive() -> AsyncIterator[bytes]:
        for _ in range(1_000):
            yield b" "
        yield b"1"

    other = asyncio.create_task(asyncio.sleep(0))
    response = httpx2.Response(200, content=arrive(), headers={"Content-Length": "1001"})
    assert await HttpAgent._read_answer(response) == b" " * 1_000 + b"1"
    assert other.done()
