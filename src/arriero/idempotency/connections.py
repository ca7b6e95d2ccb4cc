"""The caller's connection, of whatever library, inside of the transaction that the caller has open on it."""

import re
import sqlite3
from collections.abc import Awaitable, Callable
from typing import Any, NoReturn, Protocol, TypeVar

from ..errors import InvalidInput, TransactionConflict
from ..store.columns import load_statements
from ..store.connection_kinds import list_kinds
from .scripts import SCHEMA, TABLE, DatabaseAnswer, NamedStatement, Savepoint, Script

T = TypeVar("T")
SAVEPOINT = "arriero_idempotent_call"
SAVEPOINT_SQL = {
    Savepoint.OPEN: (f"SAVEPOINT {SAVEPOINT}",),
    Savepoint.RELEASE: (f"RELEASE SAVEPOINT {SAVEPOINT}",),
    Savepoint.ROLL_BACK: (f"ROLLBACK TO SAVEPOINT {SAVEPOINT}", f"RELEASE SAVEPOINT {SAVEPOINT}"),
}
# PostgreSQL: serialization failure, deadlock, a lock that was not to be had in time.
CONFLICTS = ("40001", "40P01", "55P03")
CREATED_BY_ANOTHER = ("23505", "42P07", "42710")  # two transactions created the table, and its type, at the same time
NO_TABLE, NO_RIGHT, READ_ONLY, FAILED_BEFORE = "42P01", "42501", "25006", "25P02"
KINDS = "a sqlite3.Connection, one of psycopg, a SQLAlchemy session or connection, or Django's connection"
NO_TRANSACTION = "idempotent: the connection commits each statement; {remedy}"
WAS_FAILED = "idempotent: its transaction has failed before; roll it back and run it again"
CONFLICT = "idempotent: another transaction has the key or came first ({}); roll yours back and run it again"


class CallerTransaction(Protocol):
    """A transaction of the caller's. ``drive``: runs a script; to be awaited if ``is_async``."""

    is_async: bool

    def drive(self, script: Script[T]) -> T | Awaitable[T]: ...


class _SyncTransaction:
    is_async = False

    def drive(self, script: Script[T]) -> T:
        """Run a script to its end."""
        try:
            command = next(script)
            while True:
                try:
                    answer = self.perform(command)
                except BaseException as error:
                    command = script.throw(translate(error, command))
                else:
                    command = script.send(answer)
        except StopIteration as ended:
            return ended.value  # type: ignore[no-any-return]

    def perform(self, command: NamedStatement | Savepoint) -> DatabaseAnswer:
        raise NotImplementedError


class SqliteTransaction(_SyncTransaction):
    """One of the standard library's connections. A transaction begins here if none is open."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        try:
            is_open = connection.in_transaction
        except sqlite3.ProgrammingError as error:
            raise InvalidInput(f"idempotent: {error}; use an open connection, in the thread that opened it") from error
        if not is_open:
            # autocommit=True (Python 3.12): its ``commit`` does nothing, so a transaction that begins here would be lost.
            if connection.isolation_level is None or getattr(connection, "autocommit", None) is True:
                raise InvalidInput(NO_TRANSACTION.format(remedy="execute BEGIN IMMEDIATE first"))
            self._execute("BEGIN IMMEDIATE")  # a savepoint alone would commit when it is released

    def perform(self, command: NamedStatement | Savepoint) -> DatabaseAnswer:
        if isinstance(command, Savepoint):
            for sql in SAVEPOINT_SQL[command]:
                self._execute(sql)
            return DatabaseAnswer([], 0)
        return self._execute(find_statement(command.name), command.parameters)

    def _execute(self, sql: str, parameters: Any = ()) -> DatabaseAnswer:
        cursor = self._connection.cursor()
        cursor.row_factory = None
        try:
            cursor.execute(sql, parameters)
            return DatabaseAnswer(cursor.fetchall(), cursor.rowcount)
        except sqlite3.Error as error:
            raise translate(error, None) from error
        finally:
            cursor.close()


class PsycopgTransaction(_SyncTransaction):
    """A ``psycopg.Connection``."""

    def __init__(self, connection: Any) -> None:
        refuse_unfit_psycopg(connection)
        self._connection = connection

    def perform(self, command: NamedStatement | Savepoint) -> DatabaseAnswer:
        import psycopg
        from psycopg.rows import tuple_row

        with psycopg.Cursor(self._connection, row_factory=tuple_row) as cursor:
            if isinstance(command, Savepoint):
                for sql in SAVEPOINT_SQL[command]:
                    cursor.execute(sql.encode())
                return DatabaseAnswer([], 0)
            cursor.execute(write_for_psycopg(command.name).encode(), command.parameters)
            return DatabaseAnswer(cursor.fetchall() if cursor.description else [], cursor.rowcount)


class AsyncPsycopgTransaction:
    """A ``psycopg.AsyncConnection``."""

    is_async = True

    def __init__(self, connection: Any) -> None:
        refuse_unfit_psycopg(connection)
        self._connection = connection

    async def drive(self, script: Script[T]) -> T:
        try:
            command = next(script)
            while True:
                try:
                    answer = await self._perform(command)
                except BaseException as error:
                    command = script.throw(translate(error, command))
                else:
                    command = script.send(answer)
        except StopIteration as ended:
            return ended.value  # type: ignore[no-any-return]

    async def _perform(self, command: NamedStatement | Savepoint) -> DatabaseAnswer:
        import psycopg
        from psycopg.rows import tuple_row

        async with psycopg.AsyncCursor(self._connection, row_factory=tuple_row) as cursor:
            if isinstance(command, Savepoint):
                for sql in SAVEPOINT_SQL[command]:
                    await cursor.execute(sql.encode())
                return DatabaseAnswer([], 0)
            await cursor.execute(write_for_psycopg(command.name).encode(), command.parameters)
            return DatabaseAnswer(await cursor.fetchall() if cursor.description else [], cursor.rowcount)


class SqlAlchemyTransaction(_SyncTransaction):
    """A Session or Connection of SQLAlchemy, on SQLite or PostgreSQL. Savepoints are its own, as it counts them."""

    def __init__(self, session: Any) -> None:
        self._session = session
        self._nested: list[Any] = []
        connection = session.connection() if callable(session.connection) else session
        if connection.dialect.name not in ("sqlite", "postgresql"):
            raise InvalidInput(f"idempotent: the database is {connection.dialect.name}; use SQLite or PostgreSQL")
        driver = connection.connection.driver_connection
        if connection.dialect.name == "sqlite":
            if not connection.in_transaction():
                connection.begin()
            if not driver.in_transaction:  # else the savepoint would be the transaction, and commit when it is released
                connection.exec_driver_sql("BEGIN IMMEDIATE")
        elif getattr(driver, "autocommit", False) is True:
            raise InvalidInput(NO_TRANSACTION.format(remedy="create the engine without isolation_level='AUTOCOMMIT'"))

    def perform(self, command: NamedStatement | Savepoint) -> DatabaseAnswer:
        from sqlalchemy import text

        if command is Savepoint.OPEN:
            self._nested.append(self._session.begin_nested())
        elif command is Savepoint.RELEASE:
            self._nested.pop().commit()
        elif command is Savepoint.ROLL_BACK:
            self._nested.pop().rollback()
        else:
            assert isinstance(command, NamedStatement)
            result = self._session.execute(text(find_statement(command.name)), command.parameters)
            rows = [tuple(row) for row in result.all()] if result.returns_rows else []
            return DatabaseAnswer(rows, result.rowcount)
        return DatabaseAnswer([], 0)


class AsyncSqlAlchemyTransaction:
    """An AsyncSession or AsyncConnection of SQLAlchemy."""

    is_async = True

    def __init__(self, session: Any) -> None:
        self._session = session
        self._within: SqlAlchemyTransaction | None = None

    async def drive(self, script: Script[T]) -> T:
        def drive(session: Any) -> T:
            self._within = self._within or _open(SqlAlchemyTransaction, session)
            return self._within.drive(script)

        return await self._session.run_sync(drive)  # type: ignore[no-any-return]


class DjangoTransaction(_SyncTransaction):
    """Django's connection, inside of ``transaction.atomic()``, on SQLite or PostgreSQL."""

    def __init__(self, connection: Any) -> None:
        if connection.vendor not in ("sqlite", "postgresql"):
            raise InvalidInput(f"idempotent: the database is {connection.vendor}; use SQLite or PostgreSQL")
        if not connection.in_atomic_block:
            raise InvalidInput(NO_TRANSACTION.format(remedy="call it inside transaction.atomic()"))
        if connection.needs_rollback:
            raise InvalidInput(WAS_FAILED)
        self._connection = connection

    def perform(self, command: NamedStatement | Savepoint) -> DatabaseAnswer:
        with self._connection.cursor() as cursor:
            if isinstance(command, Savepoint):
                for sql in SAVEPOINT_SQL[command]:
                    cursor.execute(sql)
                return DatabaseAnswer([], 0)
            cursor.execute(write_for_psycopg(command.name), command.parameters)
            return DatabaseAnswer(
                [tuple(row) for row in cursor.fetchall()] if cursor.description else [], cursor.rowcount
            )


def open_transaction(connection: Any) -> CallerTransaction:
    """Recognise the caller's connection. Raises InvalidInput: it is none of them, or no transaction can be open on it."""
    kinds = list_kinds(connection)
    if kinds & {"sqlalchemy.scoped_session", "sqlalchemy.async_scoped_session"}:
        connection = connection()  # the present session
        kinds = list_kinds(connection)
    made: dict[str, Callable[[Any], CallerTransaction]] = {
        "sqlite3.Connection": SqliteTransaction,
        "psycopg.Connection": PsycopgTransaction,
        "psycopg.AsyncConnection": AsyncPsycopgTransaction,
        "sqlalchemy.AsyncSession": AsyncSqlAlchemyTransaction,
        "sqlalchemy.AsyncConnection": AsyncSqlAlchemyTransaction,
        "sqlalchemy.Session": SqlAlchemyTransaction,
        "sqlalchemy.Connection": SqlAlchemyTransaction,
        "django.BaseDatabaseWrapper": DjangoTransaction,
        "django.ConnectionProxy": DjangoTransaction,
    }
    for kind, make in made.items():
        if kind in kinds:
            return _open(make, connection)
    raise InvalidInput(f"idempotent takes {KINDS}, not {connection!r}")


def _open(make: Callable[[Any], T], connection: Any) -> T:
    try:
        return make(connection)
    except Exception as error:
        told = translate(error, None)
        if told is error:
            raise
        raise told from error


def find_statement(name: str) -> str:
    return load_statements("arriero.idempotency")[name]


def write_for_psycopg(name: str) -> str:
    """The statement with parameters as psycopg and Django write them."""
    return re.sub(r":(\w+)", r"%(\1)s", find_statement(name))


def refuse_unfit_psycopg(connection: Any) -> None:
    """Raises InvalidInput: it is closed, its transaction has failed, or it commits each statement."""
    from psycopg.pq import TransactionStatus

    if connection.closed:
        raise InvalidInput("idempotent: the connection is closed; use an open one")
    status = connection.info.transaction_status
    if status == TransactionStatus.INERROR:
        raise InvalidInput(WAS_FAILED)
    if status == TransactionStatus.IDLE and connection.autocommit:
        raise InvalidInput(
            NO_TRANSACTION.format(remedy="use it inside connection.transaction(), or without autocommit")
        )


# --- errors of the drivers
def is_missing_table(error: BaseException) -> bool:
    driver_error = _find_driver_error(error)
    if isinstance(driver_error, sqlite3.Error):
        return f"no such table: {TABLE}" in str(driver_error)
    return read_sqlstate(driver_error) == NO_TABLE and TABLE in str(driver_error)


def translate(error: BaseException, command: NamedStatement | Savepoint | None) -> BaseException:
    """Say what an error means for the caller; one that is not a matter of the key stays as it is."""
    driver_error = _find_driver_error(error)
    state = read_sqlstate(driver_error)
    is_creating = isinstance(command, NamedStatement) and command.name == "create_table"
    is_busy = isinstance(driver_error, sqlite3.Error) and _is_busy(driver_error)
    told: Exception
    if is_busy or state in CONFLICTS or (is_creating and state in CREATED_BY_ANOTHER):
        told = TransactionConflict(CONFLICT.format(" ".join(str(driver_error).split())))
    elif is_creating and state == NO_RIGHT:
        told = InvalidInput(
            f"idempotent: the table {TABLE} is missing and may not be created here; create it:\n{SCHEMA}"
        )
    elif state == READ_ONLY:
        told = InvalidInput(
            "idempotent: the transaction is read-only; begin it READ WRITE, on a server that is not a standby"
        )
    elif state == FAILED_BEFORE:
        told = InvalidInput(WAS_FAILED)
    else:
        return error
    told.__cause__ = error
    return told


def read_sqlstate(error: BaseException | None) -> str | None:
    return getattr(error, "sqlstate", None) or getattr(error, "pgcode", None)


def _is_busy(error: sqlite3.Error) -> bool:
    return getattr(error, "sqlite_errorcode", 0) & 0xFF in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


def _find_driver_error(error: BaseException | None) -> BaseException | None:
    """The driver's own error behind one of SQLAlchemy (``orig``) or Django (its cause)."""
    while error is not None:
        if isinstance(error, sqlite3.Error) or read_sqlstate(error) is not None:
            return error
        error = getattr(error, "orig", None) or error.__cause__
    return None


def refuse_kind(is_async: bool) -> NoReturn:
    word = "async with" if is_async else "with"
    raise InvalidInput(f"idempotent: this connection is {'an async' if is_async else 'a sync'} one; use `{word}`")
