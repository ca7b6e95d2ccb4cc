"""The caller's own connection: whether it is fit to carry a submission, and statements on it that leave it as it was."""

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from ...errors import InvalidInput, StoreError, TransactionConflict
from ..contract import Busy
from .callers import CallerConnection, find_writing, is_busy, waiting
from .connection import translate_error
from .task_rows import query

T = TypeVar("T")
SAVEPOINT = "arriero_submission"
SUBMIT, SEND, GUARDED = "submit(connection=)", "send(connection=)", "guarded(connection)"  # what the caller called
FULL = 2  # synchronous=FULL; EXTRA is 3


class PlainConnection:
    """Statements on the caller's connection, with plain rows whatever its row factory makes of them."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def execute(self, sql: str, parameters: Any = (), /) -> sqlite3.Cursor:
        cursor = self._connection.cursor()
        cursor.row_factory = None
        return cursor.execute(sql, parameters)


def refuse_unfit(connection: sqlite3.Connection, path: str, asked: str = SUBMIT) -> None:
    """Raises InvalidInput: no transaction is open, it is another file, or a commit would not be durable."""
    try:
        in_transaction = connection.in_transaction
    except sqlite3.ProgrammingError as error:
        raise InvalidInput(f"{asked}: {error}; use an open one, in the thread that opened it") from error
    if not in_transaction:
        raise InvalidInput(
            f"{asked}: no transaction is open on it; write your own rows first, or execute BEGIN IMMEDIATE"
        )
    plain = PlainConnection(connection)
    files = {name: file for _, name, file in plain.execute("PRAGMA database_list").fetchall()}
    if not files.get("main") or not _is_same_file(files["main"], path):
        raise InvalidInput(
            f"{asked}: it is open on {files.get('main') or 'no file'}, the store is {path}; open that file,"
            " as arriero.connect does"
        )
    (journal,) = plain.execute("PRAGMA main.journal_mode").fetchone()
    if journal != "wal":
        raise InvalidInput(f"{asked}: its journal_mode is {journal}, it must be wal; see arriero.connect")
    (synchronous,) = plain.execute("PRAGMA main.synchronous").fetchone()
    if synchronous < FULL:
        raise InvalidInput(
            f"{asked}: its synchronous is {synchronous}, a commit could be lost in a power cut;"
            " execute PRAGMA synchronous=FULL when you open it, or use arriero.connect"
        )


def _is_same_file(one: str, other: str) -> bool:
    try:
        return Path(one).samefile(other)
    except OSError:
        return False


def _take_write_lock(connection: sqlite3.Connection, *, at_once: bool) -> None:
    """Before the clock is read, as in the store's own transactions."""
    take = sqlite3.Cursor(connection)  # of the standard library: what waits here is decided here
    if at_once:
        with waiting(connection, 0):
            take.execute(query("take_write_lock"))
    else:
        take.execute(query("take_write_lock"))
    if isinstance(connection, CallerConnection):
        connection.note_writing()


def conflict(path: str, connection: CallerConnection | sqlite3.Connection | None = None) -> TransactionConflict:
    """Build the error for a caller whose transaction cannot get the write lock; it names a holder in this process."""
    own = connection if isinstance(connection, CallerConnection) else None
    writing = find_writing(path, besides=own)
    return TransactionConflict(
        f"store {path}: another transaction came first; roll yours back and run it again"
        f" ({writing or 'BEGIN IMMEDIATE takes the lock immediately'})"
    )


@contextmanager
def _texts_as_text(connection: sqlite3.Connection) -> Iterator[None]:
    """Texts come as str meanwhile, whatever the caller wants of them otherwise."""
    before = connection.text_factory
    connection.text_factory = str
    try:
        yield
    finally:
        connection.text_factory = before


def in_callers_transaction(
    connection: sqlite3.Connection,
    path: str,
    work: Callable[[PlainConnection], T],
    *,
    at_once: bool = False,
    asked: str = SUBMIT,
) -> T:
    """Run ``work`` inside the transaction that is open: all of it or nothing, and the transaction stays open.

    Args:
        at_once: do not wait for the write lock; raise Busy while another process has it.
        asked: what the caller called, for errors.
    Raises: InvalidInput - the connection is not fit; TransactionConflict - another transaction came first, the caller's
    must be rolled back and run again; Busy - see ``at_once``; StoreError.
    """
    try:
        with _texts_as_text(connection):
            refuse_unfit(connection, path, asked)
            plain = PlainConnection(connection)
            # Automatic checkpoints can damage the file in releases of SQLite before 3.51.3; the store makes its own.
            plain.execute("PRAGMA wal_autocheckpoint=0")
            plain.execute(f"SAVEPOINT {SAVEPOINT}")
            try:
                _take_write_lock(connection, at_once=at_once)
                result = work(plain)
            except BaseException:
                if connection.in_transaction:  # a full disk has rolled back already
                    plain.execute(f"ROLLBACK TO {SAVEPOINT}")
                    plain.execute(f"RELEASE {SAVEPOINT}")
                raise
            plain.execute(f"RELEASE {SAVEPOINT}")
            return result
    except sqlite3.ProgrammingError as error:
        raise InvalidInput(f"{asked}: {error}; use an open one, in the thread that opened it") from error
    except sqlite3.Error as error:
        if is_busy(error):
            if at_once and error.sqlite_errorcode == sqlite3.SQLITE_BUSY:  # not a snapshot that is out of date
                raise Busy(f"store {path}: {error}") from error
            raise conflict(path, connection) from error
        told = translate_error(error, path)
        if not connection.in_transaction:
            raise StoreError(
                f"{told}; your transaction is rolled back, with your own rows: run all of it again"
            ) from error
        raise told from error
