"""The server on a real socket: connections that send too little, and the end."""

import asyncio
import logging
import ssl
from pathlib import Path

import pytest
from served_app import LIVE, read_answer, read_problem, served
from server_certificates import write_certificate

from arriero.server import connection_limits, http_protocol, http_server


async def test_what_follows_a_body_with_two_lengths_is_not_taken_for_a_request() -> None:
    async with served() as place, asyncio.timeout(60):
        reader, writer = await place.connect()
        lengths = b"Content-Length: 4\r\nTransfer-Encoding: chunked\r\n"
        writer.write(b"POST /v1/act HTTP/1.1\r\nHost: localhost\r\n" + lengths + b"\r\n0\r\n\r\n" + LIVE)
        answers = await reader.read()
        assert (answers.count(b"HTTP/1.1"), b"is given twice" in answers) == (1, True)
        assert not place.begun.is_set()
        writer.close()


@pytest.mark.parametrize("path", [b"/v1/health/live", b"/v1/health/ready"])
async def test_head_of_health_is_answered_like_get_without_a_body(path: bytes) -> None:
    async with served() as place, asyncio.timeout(60):
        reader, writer = await place.connect()
        get = LIVE.replace(b"/v1/health/live", path)
        writer.write(get.replace(b"GET", b"HEAD"))
        head = await reader.readuntil(b"\r\n\r\n")
        writer.write(get)
        assert head.startswith(b"HTTP/1.1 200")
        whole = await read_answer(reader)  # what follows is the next answer: the first one had no body
        assert whole.startswith(head.splitlines()[0])
        lengths = {part for part in (head + whole).lower().splitlines() if part.startswith(b"content-length")}
        assert len(lengths) == 1
        writer.close()


@pytest.mark.parametrize("sent", [b"", b"GET /v1/health", LIVE[:-2]])
async def test_a_connection_whose_request_does_not_come_is_closed(sent: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_protocol, "HEADER_SECONDS_MAX", 0.05)
    async with served() as place, asyncio.timeout(60):
        reader, writer = await place.connect()
        writer.write(sent)
        await reader.read()
        assert reader.at_eof()
        writer.close()


async def test_a_second_request_that_begins_and_does_not_come_closes_the_connection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with served() as place, asyncio.timeout(60):
        reader, writer = await place.connect()
        writer.write(LIVE)
        await read_answer(reader)
        monkeypatch.setattr(http_protocol, "HEADER_SECONDS_MAX", 0.05)
        writer.write(b"GET /")
        assert await reader.read() == b""
        writer.close()


async def test_a_request_that_takes_long_is_not_cut_by_the_time_for_headers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_protocol, "HEADER_SECONDS_MAX", 0.05)
    async with served() as place, asyncio.timeout(60):
        slow_reader, slow = await place.connect()
        slow.write(b"POST /v1/act HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n")
        await place.begun.wait()
        other_reader, other = await place.connect()  # its time is over after that of the other
        await other_reader.read()
        place.let_go.set()
        assert (await read_answer(slow_reader)).startswith(b"HTTP/1.1 200")
        slow.close()
        other.close()


async def test_a_connection_is_kept_for_the_next_request() -> None:
    async with served() as place, asyncio.timeout(60):
        reader, writer = await place.connect()
        for _ in range(3):
            writer.write(LIVE)
            assert b'{"status":"live"}' in await read_answer(reader)
        writer.close()


async def test_a_refusal_without_a_token_closes_the_connection() -> None:
    async with served() as place, asyncio.timeout(60):
        reader, writer = await place.connect()
        writer.write(LIVE.replace(b"/v1/health/live", b"/v1/tasks"))
        answer = await reader.read()
        assert answer.startswith(b"HTTP/1.1 401")
        assert b"connection: close" in answer.lower()
        writer.close()


async def test_requests_that_are_sent_before_the_answer_to_the_first_one_are_not_carried_out() -> None:
    async with served() as place, asyncio.timeout(60):
        reader, writer = await place.connect()
        writer.write(LIVE * 1_000)
        answers = await reader.read()
        assert answers.count(b"HTTP/1.1 200") == 1
        assert b"connection: close" in answers.lower()
        writer.close()


async def test_at_the_end_idle_connections_close_and_a_request_under_way_is_answered() -> None:
    async with served() as place, asyncio.timeout(60):
        idle_reader, idle = await place.connect()
        idle.write(LIVE)
        await read_answer(idle_reader)
        reader, writer = await place.connect()
        writer.write(b"POST /v1/act HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n")
        await place.begun.wait()
        stopping = asyncio.create_task(place.server.stop())
        assert await idle_reader.read() == b""
        with pytest.raises(OSError):  # refused or reset
            await (await place.connect())[0].readexactly(1)
        assert not stopping.done()
        place.let_go.set()
        assert (await read_answer(reader)).startswith(b"HTTP/1.1 200")
        await stopping
        idle.close()
        writer.close()


ACT = b"POST /v1/act HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n"


async def test_a_request_while_as_many_as_the_limit_are_under_way_is_told_to_come_later() -> None:
    async with served(connections_max=1) as place, asyncio.timeout(60):
        first_reader, first = await place.connect()
        first.write(ACT)
        await place.begun.wait()
        reader, writer = await place.connect()
        writer.write(LIVE.replace(b"/health/live", b"/tasks"))
        head, document = read_problem(await reader.read())
        assert (document["status"], document["code"]) == (503, "too-many-connections")
        assert b"retry-after: 1\r\n" in head
        assert place.problems["too-many-connections"] == 1
        place.let_go.set()
        assert (await read_answer(first_reader)).startswith(b"HTTP/1.1 200")
        first.close()
        writer.close()


@pytest.mark.parametrize("sent", [b"", LIVE[:-2], LIVE], ids=["nothing", "half a request", "an earlier request"])
async def test_above_the_limit_the_connection_that_has_waited_longest_for_a_request_is_closed(sent: bytes) -> None:
    async with served(connections_max=3) as place, asyncio.timeout(60):
        busy_reader, busy = await place.connect()
        busy.write(ACT)
        await place.begun.wait()
        idle = []
        for _ in range(2):
            reader, writer = await place.connect()
            writer.write(sent)
            idle.append((reader, writer))
            if sent == LIVE:
                await read_answer(reader)
        reader, writer = await place.connect()
        writer.write(LIVE)
        assert b'{"status":"live"}' in await read_answer(reader)
        assert await idle[0][0].read() == b""
        assert place.problems["too-many-connections"] == 1
        idle[1][1].write(LIVE.removeprefix(sent) or LIVE)
        assert b'{"status":"live"}' in await read_answer(idle[1][0])
        place.let_go.set()
        assert (await read_answer(busy_reader)).startswith(b"HTTP/1.1 200")
        for _, one in (*idle, (busy_reader, busy), (reader, writer)):
            one.close()


async def test_above_the_limit_of_connections_one_is_closed_when_all_have_requests_under_way() -> None:
    async with served(connections_max=2, accepted_max=2) as place, asyncio.timeout(60):
        busy = [await place.connect() for _ in range(2)]
        for _, one in busy:
            place.begun.clear()
            one.write(ACT)
            await place.begun.wait()
        reader, writer = await place.connect()
        assert await reader.read() == b""
        assert place.problems["too-many-connections"] == 1
        for _, one in (*busy, (reader, writer)):
            one.close()


def load_certificate(folder: Path) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """Contexts of a server and of its callers."""
    chain, key = write_certificate(folder)
    server, callers = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.create_default_context(cafile=str(chain))
    server.load_cert_chain(chain, key)
    return server, callers


async def test_a_handshake_that_does_not_come_is_given_up(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(http_server, "TLS_HANDSHAKE_SECONDS_MAX", 0.05)
    async with served(certificate=load_certificate(tmp_path)[0]) as place, asyncio.timeout(60):
        reader, writer = await place.connect()
        assert await reader.read() == b""
        writer.close()


async def test_a_crowd_that_begins_no_handshake_keeps_nobody_out(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(connection_limits, "HANDSHAKES_MAX", 4)
    certificate, callers = load_certificate(tmp_path)
    async with served(certificate=certificate) as place, asyncio.timeout(60):
        crowd = [await place.connect() for _ in range(40)]
        reader, writer = await asyncio.open_connection(*place.listener.getsockname(), ssl=callers)
        writer.write(LIVE)
        assert b'{"status":"live"}' in await read_answer(reader)
        for closed_reader, closed in crowd[:37]:
            assert await closed_reader.read() == b""
            closed.close()
        assert place.problems["too-many-connections"] >= 37
        assert len([record for record in caplog.records if record.levelno >= logging.WARNING]) == 5
        for _, one in (*crowd, (reader, writer)):
            one.close()


@pytest.mark.parametrize(
    ("sent", "status", "code"),
    [
        (b"GET /v1/health/live HTTP/1.1\r\nHost: localhost\r\nAuthorization Bearer s3cret\r\n\r\n", 400, "not-http"),
        (b"GET /v1/health/live HTTP/1.1\r\nAuthorization: Bearer s3cret\r\nw: \0\r\n\r\n", 400, "not-http"),
        (b"\x16\x03\x01 s3cret\r\n\r\n", 400, "not-http"),
        (LIVE[:-2] + b"Cookie: s3cret" + b"x" * 40_000, 431, "headers-too-large"),
    ],
    ids=["a header without a colon", "a NUL", "TLS", "large headers"],
)
async def test_what_is_no_request_gets_a_problem_document_that_tells_no_header(
    sent: bytes, status: int, code: str
) -> None:
    async with served() as place, asyncio.timeout(60):
        reader, writer = await place.connect()
        writer.write(sent)
        answer = await reader.read()
        head, document = read_problem(answer)
        assert (document["status"], document["code"]) == (status, code)
        assert b"x-content-type-options: nosniff\r\n" in head
        assert b"s3cret" not in answer
        assert place.problems[code] == 1
        writer.close()


async def test_a_body_that_breaks_off_being_http_is_refused_and_nothing_is_done() -> None:
    async with served() as place, asyncio.timeout(60):
        reader, writer = await place.connect()
        chunked = b"Transfer-Encoding: chunked\r\nContent-Type: application/json\r\n"
        writer.write(b"POST /v1/tasks HTTP/1.1\r\nHost: localhost\r\n" + chunked + b"\r\nno chunk\r\n")
        _, document = read_problem(await reader.read())
        assert document["status"] in (400, 401)  # the token is asked for first
        writer.close()
