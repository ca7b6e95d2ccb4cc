"""Connections to the file, fit for the journal arriero needs, and the one place that translates SQLite's errors."""

import contextlib
import os
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from ...errors import ArrieroError, StoreError, UnreadableRow
from ...model import Instant
from ...system.boot_clock import nanoseconds_since_boot, seconds_since_boot
from ..contract import Unwritten
from ..migrate import UNRELEASED_BUILD
from ..task_filter import fold_text
from .callers import CallerConnection, find_writing, name_existing


def since_boot() -> int:
    """Microseconds since boot, suspended time included where the system can say so."""
    return nanoseconds_since_boot() // 1000


def wall_clock() -> int:
    """Microseconds since 1970 as the machine's calendar has it."""
    return time.time_ns() // 1000


def fresh_offset(seen: Instant) -> int:
    """The offset of the store's clock for a new boot (or a new file): wall clock, never before ``seen``.

    The clock is the machine's time since boot plus this offset, which the file keeps. Setting the wall clock moves nothing,
    suspended time counts, and all processes of the machine read the same.
    """
    return max(wall_clock(), seen) - since_boot()


FileIdentity = tuple[int, int]
LOOK_SECONDS = 0.02  # for so long a busy store takes its file for the one that it has just seen


class OpenFile:
    """The file at ``path`` and its log, as they were when they were opened.

    Who removes or replaces a file leaves it open to those that have it: they would continue writing, and acknowledging, into a
    file that nobody finds again. So device and inode are looked at before a commit and before a read, though not before each of
    a busy store: a look lets another thread have the interpreter, and with one at each commit a task took a tenth longer.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._opened: dict[str, FileIdentity] = {}
        self._is_lost = False
        self._look_at = 0.0

    def remember(self) -> None:
        """The file has just been opened, and its log with it."""
        self._is_lost, self._look_at = False, 0.0
        found = {path: _identity(path) for path in (self._path, f"{self._path}-wal")}
        self._opened = {path: identity for path, identity in found.items() if identity is not None}

    def refuse_another_when_due(self) -> None:
        """``refuse_another``, unless the last look was less than ``LOOK_SECONDS`` ago."""
        if self._is_lost or seconds_since_boot() >= self._look_at:
            self.refuse_another()

    def refuse_another(self) -> None:
        """Raises Unwritten - another file is there, or none, or was since: even if it came back, others may have changed it."""
        if not self._is_lost:
            self._look_at = seconds_since_boot() + LOOK_SECONDS
            self._is_lost = any(_identity(path) != identity for path, identity in self._opened.items())
        if self._is_lost:
            raise Unwritten(
                f"store {self._path}: the file was removed or replaced while this process had it open; nothing more is"
                " written to it: put the right file there, with nothing of the old one beside it, and start the process again"
            )


def _identity(path: str) -> FileIdentity | None:
    try:
        found = os.stat(path)  # noqa: PTH116  # before each commit: a Path would cost as much again
    except FileNotFoundError:
        return None
    return (found.st_dev, found.st_ino)


FILE_MODE = 0o600  # payloads of tasks are nobody else's business
TURNS_MAX = 100  # that others may come first where several make a new file
EMPTY_MILLISECONDS = 500  # that everybody else's writes wait at most while the log is emptied
BUSY_SECONDS = 10.0  # how long a writer waits for another process's transaction before it says so

_REMEDIES = (
    ("file is not a database", "it is not a SQLite file: name another file, or move this one away"),
    ("file is encrypted", "it is not a SQLite file: name another file, or move this one away"),
    ("readonly", "it cannot be written: give this user the right to write the file and its folder"),
    ("unable to open", "it cannot be opened: create its folder, or give this user the right to write there"),
    ("disk is full", "no space is left: free some; nothing that was accepted is lost"),
    ("locked", "another program keeps the file locked: end its transaction"),
    ("no such column", UNRELEASED_BUILD),
    ("no such table: arriero_", UNRELEASED_BUILD),
    ("malformed", "the file is damaged: restore it from a backup"),
)


def translate_error(error: sqlite3.Error, path: str) -> StoreError:
    """SQLite's error as ours, naming the file and the remedy."""
    text = str(error)
    remedy = next((remedy for part, remedy in _REMEDIES if part in text), "see the message of SQLite")
    if "locked" in text and (writing := find_writing(path)) is not None:
        remedy = str(writing)
    return StoreError(f"store {path}: {text}; {remedy}")


@contextmanager
def translating(path: str) -> Iterator[None]:
    """Translate what SQLite raises inside."""
    try:
        yield
    except ArrieroError as error:
        if isinstance(error, UnreadableRow) or str(error).startswith("store "):
            raise
        raise type(error)(f"store {path}: {error}") from error
    except sqlite3.Error as error:
        raise translate_error(error, path) from error


def connect(path: str, *, query_only: bool = False) -> sqlite3.Connection:
    """A connection in autocommit mode; the caller says BEGIN."""
    _make_private(path)
    connection = sqlite3.connect(
        name_existing(path),
        timeout=BUSY_SECONDS,
        isolation_level=None,
        check_same_thread=False,
        cached_statements=256,
        uri=True,
    )
    try:
        _make_fit(connection)
        connection.execute("PRAGMA journal_size_limit=67108864")
        connection.create_function(
            "arriero_folded", 1, fold_text, deterministic=True
        )  # SQLite's lower() knows only ASCII
        if query_only:
            connection.execute("PRAGMA query_only=ON")
    except BaseException:
        connection.close()
        raise
    return connection


def _make_private(path: str) -> None:
    """Make a file that is not there, readable for this user alone; SQLite gives its -wal and -shm the same mode.

    A link may name a file that is not there. One that is there keeps the mode it was given, and is not opened: to close it again
    would give up the locks that this process has on it. SQLite itself makes no file, and says why one cannot be opened.
    """
    with contextlib.suppress(OSError):
        os.close(os.open(os.path.realpath(path), os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, FILE_MODE))


def connect_for_callers(path: str) -> CallerConnection:
    """A connection as the standard library opens it, fit for joint transactions. Raises StoreError."""
    with translating(path):
        _make_private(path)
        connection = CallerConnection(path, timeout=BUSY_SECONDS)
        try:
            _make_fit(connection)
        except BaseException:
            connection.close()
            raise
    return connection


def _make_fit(connection: sqlite3.Connection) -> None:
    """WAL; ``synchronous=FULL``: a commit that returned is on the disk; no automatic checkpoints.

    Releases of SQLite before 3.51.3 can damage the file when a checkpoint meets a commit that restarts the log; ours
    run under the write lock.
    """
    _keep_log(connection)
    connection.execute("PRAGMA synchronous=FULL")
    connection.execute("PRAGMA secure_delete=ON")  # what is removed is overwritten, not only given free
    connection.execute("PRAGMA wal_autocheckpoint=0")


def _keep_log(connection: sqlite3.Connection) -> None:
    """WAL. Where several open a new file at the same time, all but one are notified immediately that it is locked: they look again."""
    for _ in range(TURNS_MAX):
        (journal,) = connection.execute("PRAGMA journal_mode").fetchone()
        if journal == "wal":
            return
        try:
            (journal,) = connection.execute("PRAGMA journal_mode=WAL").fetchone()
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY:
                raise
            connection.execute("BEGIN IMMEDIATE")  # waits for the one who is at it
            connection.execute("ROLLBACK")
            continue
        if journal != "wal":
            raise StoreError(f"it cannot keep a write-ahead log (journal_mode={journal}): put it on a local disk")
    raise StoreError("it is locked by others again and again: end their transactions")


def holds_store(path: str) -> bool:
    """Returns True if the file is a store of ours. Nothing is made or changed. Raises StoreError."""
    with translating(path), closing(_connected_as_it_is(path)) as connection:
        found = connection.execute("SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'arriero_migration'")
        return found.fetchone() is not None


def _connected_as_it_is(path: str) -> sqlite3.Connection:
    return sqlite3.connect(name_existing(path), uri=True, timeout=BUSY_SECONDS)


def checkpoint(
    writer: sqlite3.Connection, checkpointer: sqlite3.Connection, begin: Callable[[sqlite3.Connection], None]
) -> None:
    """Move the log into the file while nobody can commit: ``writer`` holds the write lock for as long."""
    begin(writer)
    try:
        checkpointer.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
    finally:
        writer.execute("ROLLBACK")


def empty_log(writer: sqlite3.Connection) -> bool:
    """Move the log into the file and cut it to nothing, so that no copy of what was removed is left in it.

    SQLite holds the write lock meanwhile, from before the first page: nobody commits. False: a caller reads an older state.
    """
    (busy_before,) = writer.execute("PRAGMA busy_timeout").fetchone()
    writer.execute(f"PRAGMA busy_timeout={EMPTY_MILLISECONDS}")
    try:
        (is_busy, _, _) = writer.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    finally:
        writer.execute(f"PRAGMA busy_timeout={busy_before}")
    return not is_busy


def absolute(path: str) -> str:
    """The path as errors and locks name it."""
    return str(Path(path).absolute())
