"""Limits of connections: idle callers never take the files that the process needs, and the log stays short."""

import asyncio
import errno
import os
import resource
import socket
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from served_app import LIVE, read_answer, served
from waiting import wait_until_async

from arriero import App
from arriero.config import load_configuration
from arriero.server import (
    connection_limits,
    http_protocol,
)
from arriero.server.connection_limits import ConnectionLimits, LimitedListener, limit_connections
from arriero.server.http_protocol import PatientProtocol
from arriero.server.service import HttpService


@pytest.mark.parametrize(
    ("connections_max", "files_max", "limits"),
    [
        (500, 1_048_576, ConnectionLimits(500, 532)),
        (500, 1_024, ConnectionLimits(500, 532)),
        (2_000, 1_024, ConnectionLimits(896, 928)),
        (500, 256, ConnectionLimits(128, 160)),
        (500, 64, ConnectionLimits(32, 40)),
        (1, 1_024, ConnectionLimits(1, 33)),
        (500, 1, ConnectionLimits(1, 2)),
    ],
)
def test_the_limits_leave_files_for_the_rest_of_the_process(
    connections_max: int, files_max: int, limits: ConnectionLimits
) -> None:
    assert limit_connections(connections_max, files_max) == limits


@pytest.mark.parametrize(("files_max", "is_logged"), [(64, True), (1_024, False), (resource.RLIM_INFINITY, False)])
def test_a_setting_above_the_open_files_is_logged_with_both_limits(
    files_max: int, is_logged: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda which: (files_max, files_max))
    configuration = load_configuration(environment={"ARRIERO_HTTP_PORT": "0"}, folder=tmp_path)
    HttpService(App("shop", store="memory://"), configuration, tmp_path / "token").close_unused()
    said = [record.getMessage() for record in caplog.records]
    assert [line for line in said if "http.connections_max is 500" in line and "only 64 files: 32 con" in line] == said
    assert len(said) == is_logged


def listening() -> LimitedListener:
    listener = LimitedListener(socket.AF_INET)
    listener.bind(("127.0.0.1", 0))
    listener.listen(8)
    listener.setblocking(False)
    return listener


@contextmanager
def without_free_files() -> Iterator[None]:
    """All files are open that the system allows this process."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    taken = [os.open(os.devnull, os.O_RDONLY)]
    resource.setrlimit(
        resource.RLIMIT_NOFILE, (max(int(file.name) for file in Path("/proc/self/fd").iterdir()) + 1, hard)
    )
    try:
        with suppress(OSError):
            while True:
                taken.append(os.open(os.devnull, os.O_RDONLY))
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for one in taken:
            os.close(one)


class Callers:
    """Callers of a listener, and its side of their connections."""

    def __init__(self, listener: LimitedListener, **limits: Any) -> None:
        self.closed = 0
        self._listener = listener
        self._ends: list[socket.socket] = []
        listener.limit(ConnectionLimits(2, 4), self._note_closed, **limits)

    def _note_closed(self) -> None:
        self.closed += 1

    def connect(self) -> tuple[socket.socket, socket.socket]:
        caller = socket.create_connection(self._listener.getsockname())
        self._ends.append(caller)
        here, _ = self._listener.accept()
        self._ends.append(here)
        return caller, here

    def __enter__(self) -> "Callers":
        return self

    def __exit__(self, *error: object) -> None:
        for end in self._ends:
            end.close()


@pytest.mark.parametrize("has_handshakes", [True, False])
def test_the_oldest_connection_that_waits_is_closed_for_a_new_one_and_a_busy_one_never(has_handshakes: bool) -> None:
    with closing(listening()) as listener, Callers(listener, has_handshakes=has_handshakes) as callers:
        busy, busy_here = callers.connect()
        if has_handshakes:
            listener.note_waiting(busy_here.fileno())
        listener.note_busy(busy_here.fileno())
        idle, idle_here = callers.connect()
        _, newest_here = callers.connect()
        assert (idle.recv(1), callers.closed) == (b"", 1)
        assert listener.is_closing(idle_here.fileno())
        idle_here.close()
        idle_here.close()  # counts once
        callers.connect()
        assert (callers.closed, listener.is_closing(newest_here.fileno())) == (2, True)
        busy_here.send(b"x")
        assert busy.recv(1) == b"x"


def test_when_all_are_busy_connections_are_accepted_up_to_the_limit_and_each_end_makes_room() -> None:
    with closing(listening()) as listener, Callers(listener) as callers:
        heres = [callers.connect()[1] for _ in range(2)]
        for here in heres:
            listener.note_busy(here.fileno())
        for _ in range(2):
            heres.append(callers.connect()[1])
            listener.note_busy(heres[-1].fileno())
        with pytest.raises(BlockingIOError):
            callers.connect()
        assert callers.closed == 1
        heres[0].close()
        callers.connect()
        assert callers.closed == 1


def test_only_a_few_connections_at_once_are_closed_for_others_and_the_rest_waits_to_be_accepted() -> None:
    with closing(listening()) as listener, Callers(listener) as callers:
        listener.limit(ConnectionLimits(2, 100), lambda: None)
        heres = [callers.connect()[1] for _ in range(2 + connection_limits.CLOSING_MAX)]
        with pytest.raises(BlockingIOError):
            callers.connect()
        heres[0].close()
        assert listener.accept()[0].close() is None


def test_without_a_free_file_each_waiting_connection_is_closed_and_none_of_the_accepts_fails() -> None:
    refused: list[None] = []
    with closing(listening()) as listener:
        listener.limit(ConnectionLimits(100, 100), lambda: refused.append(None))
        callers = [socket.create_connection(listener.getsockname()) for _ in range(3)]
        with without_free_files():
            for _ in range(4):
                with pytest.raises(BlockingIOError):
                    listener.accept()
        assert (len(refused), [caller.recv(1) for caller in callers]) == (3, [b""] * 3)
        with socket.create_connection(listener.getsockname()):
            listener.accept()[0].close()
        for caller in callers:
            caller.close()


def test_without_the_reserved_file_asyncio_gets_one_error_in_a_turn_after_which_it_pauses(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(connection_limits, "_open_reserve", lambda: None)
    with closing(listening()) as listener, socket.create_connection(listener.getsockname()):
        with without_free_files():
            for _ in range(2):
                with pytest.raises(OSError) as failed:
                    listener.accept()
                assert failed.value.errno == errno.EMFILE
                with pytest.raises(BlockingIOError):
                    listener.accept()
        listener.accept()[0].close()


GARBAGE = b"POST /v1/act HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nno chunk\r\n"


async def test_connections_that_linger_after_garbage_take_nobodys_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_protocol, "LINGER_SECONDS", 3_600)
    async with served(connections_max=2, accepted_max=3) as place, asyncio.timeout(120):
        hostile = []
        for _ in range(3):
            reader, writer = await place.connect()
            writer.write(GARBAGE)
            assert (await reader.readuntil(b"\r\n")).startswith(b"HTTP/1.1 400")
            hostile.append(writer)
        reader, writer = await place.connect()
        writer.write(LIVE)
        assert (await read_answer(reader)).startswith(b"HTTP/1.1 200")
        for one in (*hostile, writer):
            one.close()


async def test_a_connection_that_lingers_ends_when_its_place_is_needed_although_its_input_is_paused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(http_protocol, "LINGER_SECONDS", 3_600)
    monkeypatch.setattr(http_protocol, "PAUSE_SECONDS", 3_600)
    async with served(connections_max=1, accepted_max=3) as place, asyncio.timeout(120):
        reader, hostile = await place.connect()
        hostile.write(GARBAGE.replace(b"no chunk", b"1").replace(b"/v1/act", b"/v1/nowhere"))
        assert (await reader.read()).startswith(b"HTTP/1.1 404")  # and then no end of the body
        hostile.write(b"x\r\n")
        (protocol,) = place.server._server.server_state.connections
        assert isinstance(protocol, PatientProtocol)
        await wait_until_async(lambda: protocol._lingering._pause is not None)
        reader, writer = await place.connect()
        writer.write(LIVE)
        assert (await read_answer(reader)).startswith(b"HTTP/1.1 200")
        await wait_until_async(lambda: len(place.listener._open) == 1)
        for one in (hostile, writer):
            one.close()
