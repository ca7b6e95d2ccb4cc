"""Limits of the connections of a server, and the listener that keeps them: no crowd of idle callers takes all open files."""

import errno
import os
import socket
import sys
from collections.abc import Callable
from typing import Any, NoReturn

import msgspec

FILES_RESERVED = 128  # for the store, the Agents and the log; of a limit below 256: half
REFUSED_SHARE = 4  # a quarter of the reserve, for connections above the limit that are answered with 503
_NO_FILE_LEFT = (errno.EMFILE, errno.ENFILE)


class ConnectionLimits(msgspec.Struct, frozen=True):
    """Maximum numbers of connections: that are ``served``, and that are ``accepted``, which includes those answered with 503."""

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
    return ConnectionLimits(served, served + max(1, reserved // REFUSED_SHARE))


class LimitedListener(socket.socket):
    """A listening socket that closes connections above a limit when they come.

    uvicorn counts a connection after its TLS handshake, but an idle caller takes a file before. Without a free file, asyncio
    accepts its whole backlog again and logs a traceback for each (cpython#151615). Therefore one file is kept in reserve: a connection that
    needs it is accepted and closed.
    """

    def __init__(self, family: int, kind: int = socket.SOCK_STREAM, protocol: int = 0) -> None:
        super().__init__(family, kind, protocol)
        self._accepted_max = sys.maxsize
        self._on_refused: Callable[[], None] = _ignore
        self._open = 0
        self._reserve = _open_reserve()
        self._has_failed = False

    def limit(self, accepted_max: int, on_refused: Callable[[], None]) -> None:
        """Set the number of connections that may be open, and what is called for each connection that was closed."""
        self._accepted_max, self._on_refused = accepted_max, on_refused

    def accept(self) -> tuple[socket.socket, Any]:
        """Accept a connection. Raises BlockingIOError - none waits, or the one that waited was refused; OSError."""
        if self._has_failed:  # asyncio pauses after an error, but only when the next accept finds nothing
            self._has_failed = False
            raise BlockingIOError
        try:
            connection, address = super().accept()
        except OSError as error:
            if error.errno not in _NO_FILE_LEFT:
                raise
            self._refuse(self._accept_with_reserve())
        if self._open >= self._accepted_max:
            self._refuse(connection)
        self._open += 1
        return _CountedConnection(self, connection), address

    def note_closed(self) -> None:
        """Count a connection out."""
        self._open -= 1

    def close(self) -> None:
        super().close()
        if self._reserve is not None:
            os.close(self._reserve)
            self._reserve = None

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
        self._on_refused()
        raise BlockingIOError


class _CountedConnection(socket.socket):
    """A connection that its listener counts until it is closed."""

    def __init__(self, listener: LimitedListener, accepted: socket.socket) -> None:
        super().__init__(accepted.family, accepted.type, accepted.proto, fileno=accepted.detach())
        self._listener: LimitedListener | None = listener

    def close(self) -> None:
        super().close()
        if self._listener is not None:
            self._listener.note_closed()
            self._listener = None


def _open_reserve() -> int | None:
    try:
        return os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None


def _ignore() -> None: ...
