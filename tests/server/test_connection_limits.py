"""Limits of connections: idle callers never take the files that the process needs, and the log stays short."""

import errno
import os
import resource
import socket
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import pytest

from arriero import App
from arriero.config import load_configuration
from arriero.server import connection_limits
from arriero.server.connection_limits import ConnectionLimits, LimitedListener, limit_connections
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


def test_a_connection_above_the_limit_is_closed_and_each_end_makes_room() -> None:
    refused: list[None] = []
    with closing(listening()) as listener:
        listener.limit(1, lambda: refused.append(None))
        with (
            socket.create_connection(listener.getsockname()),
            socket.create_connection(listener.getsockname()) as second,
        ):
            first_here, _ = listener.accept()
            with pytest.raises(BlockingIOError):
                listener.accept()
            assert (len(refused), second.recv(1)) == (1, b"")
            first_here.close()
            first_here.close()  # counts once
        with socket.create_connection(listener.getsockname()), socket.create_connection(listener.getsockname()):
            listener.accept()[0].close()
            listener.accept()[0].close()
        assert len(refused) == 1


def test_without_a_free_file_each_waiting_connection_is_closed_and_none_of_the_accepts_fails() -> None:
    refused: list[None] = []
    with closing(listening()) as listener:
        listener.limit(100, lambda: refused.append(None))
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
