"""The connection that ``arriero.connect`` gives: one of the standard library's that never stops an event loop for long.

SQLite waits for the write lock in the calling thread. On the thread of an event loop nothing else runs meanwhile, and the
transaction it waits for may be one of the same loop: that one cannot end before the wait does. So on an event loop a
statement waits for ``LOOP_BUSY_SECONDS`` at most, and not at all for a transaction of its own thread.
"""

import asyncio
import re
import sqlite3
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeVar
from weakref import WeakSet

REMEDY = "commit before you await, and call no service inside a transaction"
_QUIET = ("arriero", "contextlib")  # packages whose lines say nothing about who began a transaction

_lock = threading.Lock()
_connections: "WeakSet[Writes]" = WeakSet()


class Writing(NamedTuple):
    """A transaction of this process that holds the file's write lock, so that an error can name it.

    SQLite says only that the file is locked. When the holder is a connection of the same process, the remedy is in the program
    that reads the error: nearly always a transaction that was begun, and then something was awaited.
    """

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
    """Register a connection, so that ``find_writing`` asks it as long as a caller uses it."""
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


T = TypeVar("T")
LOOP_BUSY_SECONDS = 1.0  # commits of others take milliseconds; a lease of 3 s must be renewed meanwhile

_TAKES_LOCK = re.compile(
    r"(?:\s|--[^\n]*\n|/\*.*?\*/)*"  # comments before it
    r"(?:BEGIN\s+(?:IMMEDIATE|EXCLUSIVE)|INSERT|UPDATE|DELETE|REPLACE|CREATE|DROP|ALTER|REINDEX|ANALYZE|VACUUM"
    r"|WITH\b.*\b(?:INSERT|UPDATE|DELETE|REPLACE))\b",
    re.IGNORECASE | re.DOTALL,
)


def takes_write_lock(sql: str) -> bool:
    """Returns True if a statement needs the file's write lock, as far as its words say."""
    return _TAKES_LOCK.match(sql) is not None


def is_busy(error: sqlite3.Error) -> bool:
    """Returns True if another process has the lock, or committed first."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_BUSY


def name_existing(path: str) -> str:
    """Name a file to SQLite so that it makes none: its own would have the mode that the umask leaves."""
    return f"{Path(path).absolute().as_uri()}?mode=rw"


class CallerConnection(sqlite3.Connection):
    """Connection that ``arriero.connect`` gives. Its parameters are those of ``sqlite3.Connection``."""

    def __init__(self, path: str, **options: Any) -> None:
        super().__init__(name_existing(path), uri=True, **options)
        self.path = path
        self._writing: Writing | None = None
        remember(self)

    def writing(self) -> Writing | None:
        """Its transaction, if that holds the write lock. Any thread may ask."""
        try:
            return self._writing if self.in_transaction else None
        except sqlite3.ProgrammingError:  # it is closed
            return None

    def begin_at_once(self) -> bool:
        """Begin a transaction that holds the write lock; False: another process has it. Waits for nobody."""
        with waiting(self, 0):
            try:
                super().execute("BEGIN IMMEDIATE")
            except sqlite3.OperationalError as error:
                if is_busy(error):
                    return False
                raise
        self._writing = begun_here()
        return True

    def note_writing(self) -> None:
        """Its transaction holds the write lock from now on, unless it does already."""
        if self.writing() is None:
            self._writing = begun_here()

    def cursor(self, factory: Any = None) -> Any:
        return super().cursor(CallerCursor if factory is None else factory)

    def execute(self, sql: str, *parameters: Any) -> sqlite3.Cursor:
        return self.run(sql, lambda: super(CallerConnection, self).execute(sql, *parameters))

    def executemany(self, sql: str, *parameters: Any) -> sqlite3.Cursor:
        return self.run(sql, lambda: super(CallerConnection, self).executemany(sql, *parameters))

    def executescript(self, sql: str, /) -> sqlite3.Cursor:
        return self.run(sql, lambda: super(CallerConnection, self).executescript(sql))

    def run(self, sql: str, statement: Callable[[], T]) -> T:
        """Run a statement of the caller's. Raises what SQLite raises; a lock of our own process is named."""
        if self.writing() is None:
            self._writing = None  # that one has ended
        if self._writing is not None or not takes_write_lock(sql):
            return statement()
        try:
            if not _is_on_event_loop():
                result = statement()
            elif writing := find_writing(self.path, besides=self, thread=threading.get_ident()):
                raise build_lock_error(f"database is locked; {writing}")
            else:
                with waiting(self, LOOP_BUSY_SECONDS):
                    result = statement()
        except sqlite3.OperationalError as error:
            writing = find_writing(self.path, besides=self) if is_busy(error) else None
            if writing is None or str(writing.where) in str(error):
                raise
            raise build_lock_error(f"{error}; {writing}") from error
        if self.in_transaction:
            self._writing = begun_here()
        return result


class CallerCursor(sqlite3.Cursor):
    """A cursor of a ``CallerConnection``: its statements wait as the connection's do."""

    connection: CallerConnection

    def execute(self, sql: str, *parameters: Any) -> "CallerCursor":
        return self.connection.run(sql, lambda: super(CallerCursor, self).execute(sql, *parameters))

    def executemany(self, sql: str, *parameters: Any) -> "CallerCursor":
        return self.connection.run(sql, lambda: super(CallerCursor, self).executemany(sql, *parameters))

    def executescript(self, sql: str, /) -> "CallerCursor":
        self.connection.run(sql, lambda: super(CallerCursor, self).executescript(sql))
        return self


def build_lock_error(text: str) -> sqlite3.OperationalError:
    """SQLite's own error for a locked file, with our words."""
    error = sqlite3.OperationalError(text)
    error.sqlite_errorcode, error.sqlite_errorname = sqlite3.SQLITE_BUSY, "SQLITE_BUSY"
    return error


@contextmanager
def waiting(connection: sqlite3.Connection, seconds: float) -> Iterator[None]:
    """Meanwhile statements wait for a lock no longer than this, and no longer than they did before."""
    plain = sqlite3.Cursor(connection)
    plain.row_factory = None
    (before,) = plain.execute("PRAGMA busy_timeout").fetchone()
    plain.execute(f"PRAGMA busy_timeout={min(before, round(1000 * seconds))}")
    try:
        yield
    finally:
        plain.execute(f"PRAGMA busy_timeout={before}")


def read_busy_timeout(connection: sqlite3.Connection) -> float:
    """Seconds that its statements wait for a lock."""
    plain = sqlite3.Cursor(connection)
    plain.row_factory = None
    (milliseconds,) = plain.execute("PRAGMA busy_timeout").fetchone()
    return float(milliseconds) / 1000


def _is_on_event_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
