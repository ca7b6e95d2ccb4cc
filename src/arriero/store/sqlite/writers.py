"""The transaction of this process that holds a file's write lock, so that an error can name it.

SQLite says only that the file is locked. When the holder is a connection of the same process, the remedy is in the program
that reads the error: nearly always a transaction that was begun, and then something was awaited.
"""

import sys
import threading
import time
from pathlib import Path
from typing import NamedTuple, Protocol
from weakref import WeakSet

REMEDY = "commit before you await, and call no service inside a transaction"
_QUIET = ("arriero", "contextlib")  # packages whose lines say nothing about who began a transaction

_lock = threading.Lock()
_connections: "WeakSet[Writes]" = WeakSet()


class Writing(NamedTuple):
    """A transaction that holds the write lock."""

    thread: int
    began_at: float  # monotonic
    clock: str  # hours, minutes and seconds, local
    where: str  # file and line

    def __str__(self) -> str:
        open_for = time.monotonic() - self.began_at
        return (
            "the file is locked for writing by a transaction of this very process, open since"
            f" {self.clock} ({open_for:.1f} s), begun in {self.where}: {REMEDY}"
        )


class Writes(Protocol):
    """A connection that knows whether it holds the write lock."""

    path: str

    def writing(self) -> Writing | None: ...

    def __hash__(self) -> int: ...


def remember(connection: Writes) -> None:
    """Register a connection, so that ``find_writing`` asks it as long as somebody uses it."""
    with _lock:
        _connections.add(connection)


def find_writing(path: str, *, besides: Writes | None = None, thread: int | None = None) -> Writing | None:
    """The transaction of this process that holds the write lock of the file; None: none is known of.

    Args:
        besides: a connection that is not meant.
        thread: only a transaction that was begun in this thread.
    """
    with _lock:
        others = [one for one in _connections if one is not besides and one.path == path]
    found = (one.writing() for one in others)
    return next((one for one in found if one is not None and thread in (None, one.thread)), None)


def begun_here() -> Writing:
    """A transaction that begins now in this thread, at the line of the user's code that asked for it."""
    frame = sys._getframe(1)
    while frame.f_back is not None and str(frame.f_globals.get("__name__", "")).split(".")[0] in _QUIET:
        frame = frame.f_back
    where = f"{Path(frame.f_code.co_filename).name}, line {frame.f_lineno}"
    return Writing(threading.get_ident(), time.monotonic(), time.strftime("%H:%M:%S"), where)
