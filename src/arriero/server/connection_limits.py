"""Limits of the connections of a server, and the listener that keeps them: no crowd of idle callers takes all open files or places."""

import errno
import os
import re
import socket
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NoReturn

import msgspec

FILES_RESERVED = 128  # for the store, the Agents and the log; of a limit below 256: half
KEPT_SHARE = 4  # a quarter of the reserve, for connections above the limit
HANDSHAKES_MAX = 128  # of TLS running: each takes 256 KiB, and a millisecond of the event loop
CLOSING_MAX = 8  # connections that were closed for others and have not ended yet
_NO_FILE_LEFT = (errno.EMFILE, errno.ENFILE)


# Asked of a server that is full, too: whether it lives, and what would cost an attempt if it were refused.
_match_kept = re.compile(
    r"/v1/health/[a-z]+|/v1/agents/[^/]+/requests:(?:report|report-batch|extend|release)"
).fullmatch


def is_kept(path: str) -> bool:
    """Return True if requests of a path are served also when all places are taken."""
    return _match_kept(path) is not None


class ConnectionLimits(msgspec.Struct, frozen=True):
    """Maximum numbers: requests that are ``served`` concurrently, and connections ``accepted``.

    The difference is kept for paths that ``is_kept`` names; other requests on such connections are answered with 503.
    """

    served: int
    accepted: int


def limit_connections(connections_max: int, files_max: int) -> ConnectionLimits:
    """Choose the limits so that the process can always open the files that it needs besides.

    Args:
        connections_max: the setting.
        files_max: open files that the system allows this process.
    """
    reserved = min(FILES_RESERVED, files_max // 2)
    served = max(1, min(connections_max, files_max - reserved))
    return ConnectionLimits(served, served + max(1, reserved // KEPT_SHARE))


class LimitedListener(socket.socket):
    """A listening socket that closes connections above a limit: for a new one the one that has waited longest for a request.

    So a crowd of idle callers takes nobody's place: the one who sends its request soon is served before they are. A handshake that
    is not finished counts as waiting, too. If all connections have requests running, the new one is closed.

    Without a free file, asyncio accepts its whole backlog again and logs a traceback for each (cpython#151615). Therefore one file
    is kept in reserve: a connection that needs it is accepted and closed.
    """

    def __init__(self, family: int, kind: int = socket.SOCK_STREAM, protocol: int = 0) -> None:
        super().__init__(family, kind, protocol)
        self._limits = ConnectionLimits(sys.maxsize, sys.maxsize)
        self._has_handshakes = False
        self._on_closed: Callable[[], None] = _ignore
        self._open: dict[int, _CountedConnection] = {}  # by file
        self._handshakes: dict[int, None] = {}  # files whose TLS is not there yet, the oldest first
        self._waiting: dict[int, None] = {}  # files that wait for a request, the oldest first
        self._lingering: dict[int, Callable[[], None]] = {}  # what aborts a connection that is closed for its caller
        self._closing: set[int] = set()
        self._reserve = _open_reserve()
        self._has_failed = False

    def limit(self, limits: ConnectionLimits, on_closed: Callable[[], None], *, has_handshakes: bool = False) -> None:
        """Set the limits, and what is called for each connection that was closed because of them.

        ``has_handshakes``: a connection is counted as a handshake until ``note_waiting``.
        """
        self._limits, self._on_closed, self._has_handshakes = limits, on_closed, has_handshakes

    def accept(self) -> tuple[socket.socket, Any]:
        """Accept a connection. Raises BlockingIOError - none waits, or the one that waited was refused; OSError."""
        if self._has_failed:  # asyncio pauses after an error, but only when the next accept finds nothing
            self._has_failed = False
            raise BlockingIOError
        if len(self._closing) >= CLOSING_MAX:  # asyncio asks again in the next turn, when they have ended
            raise BlockingIOError
        try:
            connection, address = super().accept()
        except OSError as error:
            if error.errno not in _NO_FILE_LEFT:
                raise
            self._refuse(self._accept_with_reserve())
        self._make_room()
        if len(self._open) >= self._limits.accepted:
            self._refuse(connection)
        counted = _CountedConnection(self, connection)
        self._open[counted.fileno()] = counted
        (self._handshakes if self._has_handshakes else self._waiting)[counted.fileno()] = None
        return counted, address

    def note_waiting(self, file: int) -> None:
        """Note that a connection waits for a request: its handshake or its last answer is complete."""
        self._handshakes.pop(file, None)
        self._waiting.pop(file, None)
        if file in self._open and file not in self._closing:
            self._waiting[file] = None

    def note_lingering(self, file: int, abort: Callable[[], None]) -> None:
        """Note that a connection only waits until its caller has read the last answer. Its input may be paused meanwhile."""
        if file in self._open:
            self._lingering[file] = abort
        self.note_waiting(file)

    def note_busy(self, file: int) -> None:
        """Note that a request of a connection is running."""
        self._waiting.pop(file, None)

    def is_closing(self, file: int) -> bool:
        """Returns True if a connection was closed to make room and has not ended yet."""
        return file in self._closing

    def note_ended(self, file: int) -> None:
        """Count a connection out."""
        del self._open[file]
        self._closing.discard(file)
        self._lingering.pop(file, None)
        self._handshakes.pop(file, None)
        self._waiting.pop(file, None)

    def close(self) -> None:
        super().close()
        if self._reserve is not None:
            os.close(self._reserve)
            self._reserve = None

    def _make_room(self) -> None:
        """Close the oldest handshake or idle connection if there are too many. It ends in the next turn of the event loop."""
        if self._handshakes and (len(self._handshakes) >= HANDSHAKES_MAX or self._is_full()):
            self._close_oldest(self._handshakes)
        elif self._waiting and self._is_full():
            self._close_oldest(self._waiting)

    def _is_full(self) -> bool:
        return len(self._open) - len(self._closing) >= self._limits.served

    def _close_oldest(self, files: dict[int, None]) -> None:
        oldest = next(iter(files))
        del files[oldest]
        self._closing.add(oldest)
        if (abort := self._lingering.get(oldest)) is not None:
            abort()
        else:
            with suppress(OSError):  # the caller has gone
                self._open[oldest].shutdown(socket.SHUT_RDWR)
        self._on_closed()

    def _accept_with_reserve(self) -> socket.socket:
        """Accept with the reserved file. Raises OSError - it is in use, or another thread was faster."""
        if self._reserve is not None:
            os.close(self._reserve)
            self._reserve = None
        try:
            return super().accept()[0]
        except BlockingIOError:  # the file is taken first, so also an empty queue needs one
            self._reserve = _open_reserve()
            raise
        except OSError:
            self._has_failed = True
            raise

    def _refuse(self, connection: socket.socket) -> NoReturn:
        connection.close()
        self._reserve = _open_reserve() if self._reserve is None else self._reserve
        self._on_closed()
        raise BlockingIOError


class _CountedConnection(socket.socket):
    """A connection that its listener counts until it is closed."""

    def __init__(self, listener: LimitedListener, accepted: socket.socket) -> None:
        super().__init__(accepted.family, accepted.type, accepted.proto, fileno=accepted.detach())
        self._listener: LimitedListener | None = listener
        self._file = self.fileno()

    def close(self) -> None:
        super().close()
        if self._listener is not None:
            self._listener.note_ended(self._file)
            self._listener = None


def _open_reserve() -> int | None:
    try:
        return os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None


def _ignore() -> None: ...
