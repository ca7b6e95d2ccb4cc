"""A new task in the transaction that the caller has open: by psycopg, SQLAlchemy or Django, sync or async.

Whatever is given, the statement runs on psycopg's own connection beneath it, by a cursor of ours: how the caller reads
rows, converts values or prepares statements neither matters nor is changed. All of the work is one call of the function
``keep_task`` in the schema.
"""

import json
from collections.abc import Awaitable
from typing import Any, NoReturn

import msgspec
import psycopg
from psycopg.abc import Buffer
from psycopg.adapt import Loader
from psycopg.pq import TransactionStatus
from psycopg.rows import tuple_row
from psycopg.types.string import StrDumper

from ...answers import Refusal, Submitted
from ...commands import Submit
from ...core.deduplication import build_id_conflict, build_sequence_conflict
from ...core.placement import refuse_place
from ...errors import InvalidInput, TransactionConflict
from ...model import Instant, TailRow
from ..connection_kinds import list_kinds
from .translating import CONFLICTS, LOCK_NOT_AVAILABLE, NO_TABLES, READ_ONLY, translate_error

Driver = psycopg.Connection[Any] | psycopg.AsyncConnection[Any]

FAILED_BEFORE = "25P02"
WAS_FAILED = "submit(connection=): its transaction has failed before; roll it back and run it again"
_KINDS = "a psycopg connection, a SQLAlchemy session or connection, or Django's connection"
_DIALECTS = (("postgresql", "psycopg"), ("postgresql", "psycopg_async"))


class _Ascii(Loader):
    """Digits and words of ours, in any encoding of the caller's."""

    def load(self, data: Buffer) -> str:
        return bytes(data).decode("ascii")


def submit_joined(
    command: Submit, connection: object, statement: str, given: Instant | None, shown: str, store_id: str = ""
) -> Awaitable[Submitted | Refusal] | Submitted | Refusal:
    """Keep a new task by the caller's connection; nothing is committed here. To be awaited if the connection is async.

    Args:
        statement: ``keep_task``.
        given: the clock of a test.
        shown: the store, in errors.
        store_id: of the store; a connection to another one is refused. Empty: it is not compared.
    Raises: InvalidInput - the connection is not fit; TransactionConflict - the caller's transaction must be rolled back
    and run again; StoreError.
    """
    joining = _Joining(command, statement, given, shown, store_id)
    kinds = list_kinds(connection)
    if kinds & {"sqlalchemy.scoped_session", "sqlalchemy.async_scoped_session"}:
        connection = connection()  # type: ignore[operator]  # the present session
        kinds = list_kinds(connection)
    if kinds & {"sqlalchemy.AsyncSession", "sqlalchemy.AsyncConnection"}:
        return joining.by_async_sqlalchemy(connection)
    if kinds & {"sqlalchemy.Session", "sqlalchemy.Connection"}:
        return joining.by(_beneath_sqlalchemy(connection, shown))
    if kinds & {"django.BaseDatabaseWrapper", "django.ConnectionProxy"}:
        return joining.by(_beneath_django(connection, shown))
    if isinstance(connection, psycopg.Connection | psycopg.AsyncConnection):
        _refuse_unfit(connection, "use it inside connection.transaction(), or open it without autocommit")
        return joining.by(connection)
    raise InvalidInput(f"submit(connection=) takes {_KINDS} for the store {shown}, not {connection!r}")


class _Joining:
    """One submission on one connection of the caller's."""

    def __init__(self, command: Submit, statement: str, given: Instant | None, shown: str, store_id: str) -> None:
        self._command = command
        self._statement = statement
        submission = json.dumps({**msgspec.structs.asdict(command), "given": given})  # in ASCII
        self._parameters = {"store_id": store_id or None, "submission": submission}
        self._shown = shown

    def by(self, driver: Driver) -> Awaitable[Submitted | Refusal] | Submitted | Refusal:
        """To be awaited if the connection is async."""
        return self._by_async(driver) if isinstance(driver, psycopg.AsyncConnection) else self._by_sync(driver)

    async def by_async_sqlalchemy(self, session: Any) -> Submitted | Refusal:
        """On an AsyncSession or AsyncConnection of SQLAlchemy."""
        from sqlalchemy.exc import InvalidRequestError

        try:
            driver = await session.run_sync(_beneath_sqlalchemy, self._shown)
        except InvalidRequestError as error:  # it was never begun, or is closed
            raise _refused_by_sqlalchemy(error) from error
        return await self._by_async(driver)

    def _by_sync(self, driver: psycopg.Connection[Any]) -> Submitted | Refusal:
        try:
            with psycopg.Cursor(driver, row_factory=tuple_row) as cursor:
                _speak_plainly(cursor)
                cursor.execute(self._statement, self._parameters, prepare=False)
                return self._answer(cursor.fetchone(), driver)
        except psycopg.Error as error:
            self._raise(error)

    async def _by_async(self, driver: psycopg.AsyncConnection[Any]) -> Submitted | Refusal:
        try:
            async with psycopg.AsyncCursor(driver, row_factory=tuple_row) as cursor:
                _speak_plainly(cursor)
                await cursor.execute(self._statement, self._parameters, prepare=False)
                return self._answer(await cursor.fetchone(), driver)
        except psycopg.Error as error:
            self._raise(error)

    def _answer(
        self, row: tuple[str | None, str, str | None, str | None] | None, driver: Driver
    ) -> Submitted | Refusal:
        assert row is not None
        task_no, verdict, known_id, tail = row
        if verdict == "store":
            raise InvalidInput(
                f"submit(connection=): it is open on the database {driver.info.dbname!r} of {driver.info.host}, which has"
                f" another store than {self._shown}; connect to the store's own database"
            )
        assert task_no is not None
        command = self._command
        if verdict in ("created", "same"):
            return Submitted(int(task_no), verdict == "created", known_id or "")
        if verdict == "refused":
            assert tail is not None
            refused = refuse_place(command, msgspec.json.decode(tail, type=TailRow))
            assert refused is not None
            return refused
        if verdict == "ledger":
            kept = f"task {known_id or command.task_id!r} belongs to a ledger that is not complete"
            return Refusal("conflict", f"{kept}: submit that again, or discard it with `arriero ledger discard`")
        if verdict == "used":
            return build_sequence_conflict(known_id or "", command)
        return build_id_conflict(known_id or command.task_id, verdict)

    def _raise(self, error: psycopg.Error) -> NoReturn:
        state, told = error.sqlstate, error.diag.message_primary or _one_line(error)
        if state in CONFLICTS or state == LOCK_NOT_AVAILABLE:
            convoy = "" if self._command.convoy is None else f" or its convoy {self._command.convoy!r}"
            waited = f"another transaction has the task {self._command.task_id!r}{convoy} open, "
            if state in CONFLICTS:
                waited = ""
            raise TransactionConflict(
                f"store {self._shown}: {waited}{told}; roll your transaction back and run it again"
            ) from error
        if state == FAILED_BEFORE:
            raise InvalidInput(WAS_FAILED) from error
        if state == READ_ONLY:
            raise InvalidInput(
                f"submit(connection=): {told}; begin it READ WRITE, on a server that is no standby"
            ) from error
        if state in NO_TABLES:  # the store is open, so it has them
            raise InvalidInput(
                f"submit(connection=): {told}; its database is not that of the store {self._shown}: roll"
                " back, and connect to the store's own"
            ) from error
        raise translate_error(error, self._shown) from error


def _speak_plainly(cursor: psycopg.Cursor[Any] | psycopg.AsyncCursor[Any]) -> None:
    """Convert as psycopg does by itself. The cursor's adapters are its own: the connection keeps the caller's."""
    cursor.adapters.register_dumper(str, StrDumper)
    cursor.adapters.register_loader("text", _Ascii)


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split())


def _refuse_unfit(driver: Driver, remedy: str) -> None:
    """Raises InvalidInput: no transaction is open on it, and none is begun by its next statement."""
    if driver.closed:
        raise InvalidInput("submit(connection=): it is closed; use an open one")
    status = driver.info.transaction_status
    if status == TransactionStatus.INERROR:
        raise InvalidInput(WAS_FAILED)
    if status == TransactionStatus.IDLE and driver.autocommit:
        raise InvalidInput(f"submit(connection=): no transaction is open on it and it commits each statement; {remedy}")


# --- psycopg's connection beneath others
def _beneath_sqlalchemy(session: Any, shown: str) -> Driver:
    """The driver's connection of a Session or Connection, in SQLAlchemy's transaction. Raises InvalidInput, StoreError."""
    from sqlalchemy.exc import DBAPIError, InvalidRequestError

    try:
        connection = session.connection() if callable(session.connection) else session
        dialect = connection.dialect
        if (dialect.name, dialect.driver) not in _DIALECTS:
            raise InvalidInput(
                f"submit(connection=): SQLAlchemy speaks {dialect.name}+{dialect.driver} on it; the store is {shown},"
                " create the engine with postgresql+psycopg://"
            )
        driver: Driver = connection.connection.driver_connection
        _refuse_unfit(driver, "create the engine without isolation_level='AUTOCOMMIT'")
        if not connection.in_transaction():
            connection.begin()  # as its own first statement would
    except InvalidRequestError as error:
        raise _refused_by_sqlalchemy(error) from error
    except DBAPIError as error:
        if isinstance(error.orig, psycopg.Error):
            raise translate_error(error.orig, shown) from error
        raise InvalidInput(f"submit(connection=): {_one_line(error)}; use an engine on the store {shown}") from error
    return driver


def _refused_by_sqlalchemy(error: BaseException) -> InvalidInput:
    return InvalidInput(
        f"submit(connection=): SQLAlchemy says: {_one_line(error)}; roll back, and use an open session or connection on the"
        " store's database"
    )


def _beneath_django(connection: Any, shown: str) -> Driver:
    """The driver's connection of Django's, inside ``transaction.atomic()``. Raises InvalidInput, StoreError."""
    from django.core.exceptions import SynchronousOnlyOperation
    from django.db import Error

    if connection.vendor != "postgresql":
        raise InvalidInput(
            f"submit(connection=): Django's connection is on {connection.vendor}, the store is {shown}; name the database"
            " with it, as in connections['shop']"
        )
    try:
        commits_each = connection.get_autocommit()
    except SynchronousOnlyOperation as error:
        raise InvalidInput(
            "submit(connection=): Django's connection was given on an event loop; call app.sync.submit in code without one"
        ) from error
    except Error as error:
        raise InvalidInput(
            f"submit(connection=): Django says: {_one_line(error)}; use an open connection inside transaction.atomic()"
        ) from error
    if commits_each:
        raise InvalidInput("submit(connection=): no transaction is open on it; call it inside transaction.atomic()")
    if connection.needs_rollback:
        raise InvalidInput(WAS_FAILED)
    driver = connection.connection
    if not isinstance(driver, psycopg.Connection):
        raise InvalidInput(
            f"submit(connection=): Django speaks {type(driver).__module__.partition('.')[0]} on it; install psycopg 3"
            " (psycopg[binary]), which it prefers"
        )
    _refuse_unfit(driver, "call it inside transaction.atomic()")
    return driver
