"""Bodies in tiny parts: they cost a bounded part of each turn of the event loop, and are refused."""

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h11
import pytest
from h11 import _readers as readers
from runtime_world import QUICK
from served_app import LIVE, read_answer, read_problem, served
from server_shop import open_shop
from uvicorn.server import ServerState

from arriero import App
from arriero.server import http_protocol
from arriero.server.connection_limits import ConnectionLimits
from arriero.server.http_protocol import (
    COST_OF_REQUEST,
    COST_PER_TURN,
    COST_PER_VISIT,
    PART_BYTES_MIN,
    PARTS_FREE,
    ParsingQueue,
    PatientProtocol,
    SharedState,
    is_too_fragmented,
)
from arriero.server.request_rules import HEADERS_MAX

CHUNKED = b"POST /v1/nowhere HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
READ = CHUNKED.replace(b"/v1/nowhere", b"/v1/read").replace(b"\r\n\r\n", b"\r\nContent-Type: text/plain\r\n\r\n")
TINY = b"1\r\nx\r\n"


@pytest.mark.parametrize(
    ("parts", "size", "expected"),
    [
        (PARTS_FREE, PARTS_FREE, False),
        (PARTS_FREE + 1, PARTS_FREE + 1, True),
        (PARTS_FREE + 1, (PARTS_FREE + 1) * PART_BYTES_MIN, False),
        (1_000_000, 1_000_000 * PART_BYTES_MIN, False),
        (1_000_000, 1_000_000 * PART_BYTES_MIN - 1, True),
    ],
)
def test_a_body_may_have_any_number_of_parts_that_are_worth_their_framing(
    parts: int, size: int, expected: bool
) -> None:
    assert is_too_fragmented(parts, size) is expected


class Turns:
    """Turns of an event loop that a test runs one by one."""

    def __init__(self) -> None:
        self._due: list[Callable[[], None]] = []

    def call_soon(self, call: Callable[[], None]) -> None:
        self._due.append(call)

    def run_one(self) -> None:
        due, self._due = self._due, []
        for call in due:
            call()


class Visited:
    """A connection that needs a number of visits, each of some cost."""

    def __init__(self, queue: ParsingQueue, visits: int, cost: int, visited: list["Visited"]) -> None:
        self._queue = queue
        self._visits = visits
        self.cost = cost
        self._visited = visited

    def handle_events(self) -> int:
        self._visited.append(self)
        self._visits -= 1
        if self._visits:
            self._queue.add(self)
        return self.cost


def test_a_turn_has_a_bounded_cost_and_who_came_last_waits_for_one_visit_of_each_other() -> None:
    turns, visited = Turns(), list[Visited]()
    queue = ParsingQueue(turns.call_soon)
    hostile = [Visited(queue, 1_000, COST_PER_VISIT, visited) for _ in range(100)]
    for one in hostile:
        queue.offer(one)
    last = Visited(queue, 1, COST_OF_REQUEST, visited)
    queue.offer(last)
    for _ in range(20):
        before = len(visited)
        turns.run_one()
        cost = sum(1 + one.cost for one in visited[before:])
        assert COST_PER_TURN <= cost <= COST_PER_TURN + COST_PER_VISIT
    assert visited.index(last) <= 2 * len(hostile)


def test_hundreds_of_connections_that_send_next_to_nothing_are_visited_in_one_turn() -> None:
    turns, visited = Turns(), list[Visited]()
    queue = ParsingQueue(turns.call_soon)
    for _ in range(COST_PER_TURN):
        queue.offer(Visited(queue, 1, 0, visited))
    assert len(visited) == COST_PER_TURN


class Wire(asyncio.Transport):
    """Transport of no socket."""

    def __init__(self) -> None:
        super().__init__()
        self.is_paused = False

    def write(self, data: bytes | bytearray | memoryview) -> None: ...

    def is_closing(self) -> bool:
        return False

    def pause_reading(self) -> None:
        self.is_paused = True

    def resume_reading(self) -> None:
        self.is_paused = False


async def test_one_turn_of_the_loop_parses_a_bounded_number_of_chunks_whatever_all_connections_sent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    parsed: list[h11.Data] = []
    next_event = h11.Connection.next_event

    def count(connection: h11.Connection) -> Any:
        event = next_event(connection)
        if isinstance(event, h11.Data):
            parsed.append(event)
        return event

    monkeypatch.setattr(h11.Connection, "next_event", count)
    async with served() as place:
        turns = Turns()
        state = ServerState()
        shared = SharedState(ParsingQueue(turns.call_soon), place.listener, ConnectionLimits(100, 120))
        wires = [Wire() for _ in range(100)]
        for wire in wires:
            protocol = PatientProtocol(place.server.config, state, {}, shared=shared)
            protocol.connection_made(wire)
            protocol.data_received(CHUNKED + TINY * (PARTS_FREE - 1))
        most = COST_PER_TURN + COST_PER_VISIT
        assert len(parsed) <= most
        assert [wire.is_paused for wire in wires] == [True] * len(wires)  # or it would keep what is not parsed
        for _ in range(10):
            before = len(parsed)
            turns.run_one()
            assert 0 < len(parsed) - before <= most
        for task in state.tasks:
            task.cancel()
        for connection in list(state.connections):
            connection.connection_lost(OSError())


async def test_a_body_of_tiny_chunks_is_refused_and_nothing_is_done() -> None:
    async with served() as place, asyncio.timeout(60):
        reader, writer = await place.connect()
        writer.write(READ + TINY * (PARTS_FREE + 1))
        head, document = read_problem(await reader.read())
        assert (document["status"], document["code"]) == (400, "parts-too-small")
        assert b"connection: close" in head
        assert place.problems["parts-too-small"] == 1
        assert not place.bodies
        writer.close()


async def test_an_answer_before_the_end_of_the_body_reaches_a_caller_who_still_sends_and_closes_the_connection() -> (
    None
):
    async with served() as place, asyncio.timeout(60):
        reader, writer = await place.connect()
        writer.write(CHUNKED)
        writer.write((b"%x\r\n" % 65_536 + b"x" * 65_536 + b"\r\n") * 64)
        await writer.drain()
        head, document = read_problem(await reader.read())
        assert document["status"] == 404
        assert b"connection: close" in head
        writer.close()


async def test_a_caller_who_never_ends_its_body_is_cut_off_after_its_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_protocol, "LINGER_SECONDS", 0.05)
    async with served() as place, asyncio.timeout(60):
        reader, writer = await place.connect()
        writer.write(CHUNKED)
        await reader.read()
        with pytest.raises(OSError):
            while True:
                writer.write(TINY)
                await writer.drain()
                await asyncio.sleep(0)
        writer.close()


async def test_an_answer_after_the_end_of_the_body_keeps_the_connection() -> None:
    async with served() as place, asyncio.timeout(60):
        reader, writer = await place.connect()
        writer.write(READ + TINY * 100 + b"0\r\n\r\n")
        assert (await read_answer(reader)).startswith(b"HTTP/1.1 200")
        writer.write(LIVE)
        assert place.bodies == [b"x" * 100]
        assert b'{"status":"live"}' in await read_answer(reader)
        writer.close()


async def test_a_ledger_may_send_each_of_thousands_of_lines_as_a_chunk_of_its_own() -> None:
    async with open_shop() as world:

        async def lines() -> Any:
            for _ in range(PARTS_FREE + 1):
                yield b'{"workflow":"x"}\n'

        headers = {"Content-Type": "application/x-ndjson"}
        answer = await world.http.post("/v1/ledgers/l-1:stream?bad=set_aside", content=lines(), headers=headers)
        assert answer.status_code == 200


async def test_the_lease_of_a_process_is_renewed_while_its_event_loop_stands_still(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = App("shop", store=f"sqlite:///{tmp_path}/store.db")
    app.session.settings = QUICK
    async with app.running():
        renew, renewed = app.session.store.renew, threading.Semaphore(0)

        async def count(*args: Any) -> Any:
            answer = await renew(*args)
            assert answer.renewed
            renewed.release()
            return answer

        monkeypatch.setattr(app.session.store, "renew", count)
        for _ in range(8):  # two leases long
            assert renewed.acquire(timeout=60)


HEADERS = b"a:\r\n" * 8_000  # 32 kB, which h11 parses in 60 ms or more


@pytest.mark.parametrize(
    "request_bytes",
    [LIVE[:-2] + HEADERS + b"\r\n", READ + b"1\r\nx\r\n0\r\n" + HEADERS + b"\r\n"],
    ids=["head", "trailers"],
)
async def test_thousands_of_headers_are_refused_before_any_of_them_is_parsed(
    request_bytes: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    parsed: list[object] = []
    decode = readers._decode_header_lines

    def count_lines(lines: Any) -> Any:
        parsed.extend(lines)
        return decode(lines)

    monkeypatch.setattr(readers, "_decode_header_lines", count_lines)
    async with served() as place, asyncio.timeout(60):
        reader, writer = await place.connect()
        writer.write(request_bytes)
        _, document = read_problem(await reader.read())
        assert (document["status"], document["code"]) == (431, "headers-too-large")
        assert len(parsed) <= HEADERS_MAX
        assert not place.bodies
        writer.close()
