"""A new task, or a guard, in the transaction that the caller has open: by psycopg, SQLAlchemy or Django, sync or async.

Whatever is given, the statement runs on psycopg's own connection beneath it, by a cursor of ours: how the caller reads
rows, converts values or prepares statements neither matters nor is changed. All of the work is one call of the function
``keep_task`` in the schema.
"""

import json
from collections.abc import Awaitable
from typing import Any, Generic, NoReturn, TypeVar

import msgspec
import psycopg
from psycopg.abc import Buffer
from psycopg.adapt import Loader
from psycopg.pq import TransactionStatus
from psycopg.rows import tuple_row
from psycopg.types.string import StrDumper

from ...core.deduplication import build_id_conflict, build_sequence_conflict
from ...core.placement import refuse_place
from ...core.workflow_pauses import build_refusal
from ...errors import InvalidInput, TransactionConflict
from ...model import Instant, TailRow
from ...model.answers import Refusal, SignalPlaced, Submitted
from ...model.commands import SendSignal, Submit
from ...model.leases import LeaseTerm
from ...model.workflow_pauses import WorkflowPauseRow
from ..connection_kinds import list_kinds
from .translating import CONFLICTS, LOCK_NOT_AVAILABLE, NO_TABLES, READ_ONLY, translate_error

Driver = psycopg.Connection[Any] | psycopg.AsyncConnection[Any]

FAILED_BEFORE = "25P02"
WAS_FAILED = "its transaction has failed before; roll it back and run it again"
SUBMIT, SEND, GUARDED = "submit(connection=)", "send(connection=)", "guarded(connection)"  # what the caller called
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
    return _Submission(command, statement, given, shown, store_id).run(connection)


def send_joined(
    task_id: str,
    command: SendSignal,
    connection: object,
    statement: str,
    given: Instant | None,
    shown: str,
    store_id: str = "",
) -> Awaitable[SignalPlaced | Refusal] | SignalPlaced | Refusal:
    """Keep a signal by the caller's connection; the arguments, and what it raises, are as for ``submit_joined``.

    Args:
        task_id: of the task; ``command`` has no number, since the task may be new in the same transaction.
        statement: ``keep_signal``.
    """
    return _Sending(task_id, command, statement, given, shown, store_id).run(connection)


def check_term(
    lease: LeaseTerm, connection: object, statement: str, shown: str
) -> Awaitable[LeaseTerm | None] | LeaseTerm | None:
    """Lock a lease in the caller's transaction, so that nobody else is granted it before that ends.

    To be awaited if the connection is async.

    Args:
        statement: ``check_term``.
        shown: the store, in errors.
    Returns: the lease; None: the term is past. Raises as ``submit_joined``.
    """
    return _TermCheck(lease, statement, shown).run(connection)


A = TypeVar("A")


class _CallersStatement(Generic[A]):
    """One statement on one connection of the caller's.

    Args:
        asked: what the caller called, for errors.
        statement, parameters: to send.
        shown: the store, in errors.
    """

    def __init__(self, asked: str, statement: str, parameters: dict[str, Any], shown: str) -> None:
        self._asked = asked
        self._statement = statement
        self._parameters = parameters
        self._shown = shown

    def run(self, connection: object) -> Awaitable[A] | A:
        """Send it. To be awaited if the connection is async."""
        asked, shown = self._asked, self._shown
        kinds = list_kinds(connection)
        if kinds & {"sqlalchemy.scoped_session", "sqlalchemy.async_scoped_session"}:
            connection = connection()  # type: ignore[operator]  # the present session
            kinds = list_kinds(connection)
        if kinds & {"sqlalchemy.AsyncSession", "sqlalchemy.AsyncConnection"}:
            return self._by_async_sqlalchemy(connection)
        if kinds & {"sqlalchemy.Session", "sqlalchemy.Connection"}:
            return self._by(_beneath_sqlalchemy(connection, shown, asked))
        if kinds & {"django.BaseDatabaseWrapper", "django.ConnectionProxy"}:
            return self._by(_beneath_django(connection, shown, asked))
        if isinstance(connection, psycopg.Connection | psycopg.AsyncConnection):
            _refuse_unfit(connection, "use it inside connection.transaction(), or open it without autocommit", asked)
            return self._by(connection)
        raise InvalidInput(f"{asked} takes {_KINDS} for the store {shown}, not {connection!r}")

    def _by(self, driver: Driver) -> Awaitable[A] | A:
        return self._by_async(driver) if isinstance(driver, psycopg.AsyncConnection) else self._by_sync(driver)

    async def _by_async_sqlalchemy(self, session: Any) -> A:
        from sqlalchemy.exc import InvalidRequestError

        try:
            driver = await session.run_sync(_beneath_sqlalchemy, self._shown, self._asked)
        except InvalidRequestError as error:  # it was never begun, or is closed
            raise _refused_by_sqlalchemy(error, self._asked) from error
        return await self._by_async(driver)

    def _by_sync(self, driver: psycopg.Connection[Any]) -> A:
        try:
            with psycopg.Cursor(driver, row_factory=tuple_row) as cursor:
                _speak_plainly(cursor)
                cursor.execute(self._statement, self._parameters, prepare=False)
                return self._answer(cursor.fetchone(), driver)
        except psycopg.Error as error:
            self._raise(error)

    async def _by_async(self, driver: psycopg.AsyncConnection[Any]) -> A:
        try:
            async with psycopg.AsyncCursor(driver, row_factory=tuple_row) as cursor:
                _speak_plainly(cursor)
                await cursor.execute(self._statement, self._parameters, prepare=False)
                return self._answer(await cursor.fetchone(), driver)
        except psycopg.Error as error:
            self._raise(error)

    def _answer(self, row: tuple[Any, ...] | None, driver: Driver) -> A:
        raise NotImplementedError

    def _describe_lock(self) -> str:
        """Describe the transaction that holds a lock which could not be taken."""
        raise NotImplementedError

    def _raise(self, error: psycopg.Error) -> NoReturn:
        state, told = error.sqlstate, error.diag.message_primary or _one_line(error)
        if state in CONFLICTS or state == LOCK_NOT_AVAILABLE:
            waited = "" if state in CONFLICTS else f"another transaction has {self._describe_lock()} open, "
            raise TransactionConflict(
                f"store {self._shown}: {waited}{told}; roll your transaction back and run it again"
            ) from error
        if state == FAILED_BEFORE:
            raise InvalidInput(f"{self._asked}: {WAS_FAILED}") from error
        if state == READ_ONLY:
            raise InvalidInput(
                f"{self._asked}: {told}; begin it READ WRITE, on a server that is not a standby"
            ) from error
        if state in NO_TABLES:  # the store is open, so it has them
            raise InvalidInput(
                f"{self._asked}: {told}; its database is not that of the store {self._shown}: roll"
                " back, and connect to the store's own"
            ) from error
        raise translate_error(error, self._shown) from error


class _TermCheck(_CallersStatement[LeaseTerm | None]):
    """A transaction that the term of a lease guards."""

    def __init__(self, lease: LeaseTerm, statement: str, shown: str) -> None:
        super().__init__(GUARDED, statement, msgspec.structs.asdict(lease), shown)
        self._lease = lease

    def _answer(self, row: tuple[Any, ...] | None, driver: Driver) -> LeaseTerm | None:
        return None if row is None else self._lease

    def _describe_lock(self) -> str:
        return f"the lease {self._lease.name!r}"


class _Sending(_CallersStatement[SignalPlaced | Refusal]):
    """A signal to a task."""

    def __init__(
        self, task_id: str, command: SendSignal, statement: str, given: Instant | None, shown: str, store_id: str
    ) -> None:
        sending = json.dumps({**msgspec.structs.asdict(command), "task_id": task_id, "given": given})  # in ASCII
        super().__init__(SEND, statement, {"store_id": store_id or None, "sending": sending}, shown)
        self._task_id = task_id

    def _answer(self, row: tuple[Any, ...] | None, driver: Driver) -> SignalPlaced | Refusal:
        assert row is not None
        number, verdict, detail, state = row
        if verdict == "store":
            raise _build_other_store(SEND, driver, self._shown)
        if verdict in ("kept", "same"):
            return SignalPlaced(int(number), verdict == "kept")
        return Refusal(verdict, bytes.fromhex(detail or "").decode(), state or "")

    def _describe_lock(self) -> str:
        return f"the task {self._task_id!r}"


class _Submission(_CallersStatement[Submitted | Refusal]):
    """A new task."""

    def __init__(self, command: Submit, statement: str, given: Instant | None, shown: str, store_id: str) -> None:
        submission = json.dumps({**msgspec.structs.asdict(command), "given": given})  # in ASCII
        super().__init__(SUBMIT, statement, {"store_id": store_id or None, "submission": submission}, shown)
        self._command = command

    def _answer(self, row: tuple[Any, ...] | None, driver: Driver) -> Submitted | Refusal:
        assert row is not None
        task_no, verdict, known_id, tail = row
        if verdict == "store":
            raise _build_other_store(SUBMIT, driver, self._shown)
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
        if verdict == "paused":
            assert tail is not None
            return build_refusal(msgspec.json.decode(tail, type=WorkflowPauseRow))
        if verdict == "used":
            return build_sequence_conflict(known_id or "", command)
        return build_id_conflict(known_id or command.task_id, verdict)

    def _describe_lock(self) -> str:
        convoy = "" if self._command.convoy is None else f" or its convoy {self._command.convoy!r}"
        return f"the task {self._command.task_id!r}{convoy}"


def _build_other_store(asked: str, driver: Driver, shown: str) -> InvalidInput:
    """Build the error of a connection to a database that has another store."""
    return InvalidInput(
        f"{asked}: it is open on the database {driver.info.dbname!r} of {driver.info.host}, which has"
        f" another store than {shown}; connect to the store's own database"
    )


def _speak_plainly(cursor: psycopg.Cursor[Any] | psycopg.AsyncCursor[Any]) -> None:
    """Convert as psycopg does by itself. The cursor's adapters are its own: the connection keeps the caller's."""
    cursor.adapters.register_dumper(str, StrDumper)
    cursor.adapters.register_loader("text", _Ascii)


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split())


def _refuse_unfit(driver: Driver, remedy: str, asked: str) -> None:
    """Raises InvalidInput: no transaction is open on it, and none is begun by its next statement."""
    if driver.closed:
        raise InvalidInput(f"{asked}: it is closed; use an open one")
    status = driver.info.transaction_status
    if status == TransactionStatus.INERROR:
        raise InvalidInput(f"{asked}: {WAS_FAILED}")
    if status == TransactionStatus.IDLE and driver.autocommit:
        raise InvalidInput(f"{asked}: no transaction is open on it and it commits each statement; {remedy}")


# --- psycopg's connection beneath others
def _beneath_sqlalchemy(session: Any, shown: str, asked: str) -> Driver:
    """The driver's connection of a Session or Connection, in SQLAlchemy's transaction. Raises InvalidInput, StoreError."""
    from sqlalchemy.exc import DBAPIError, InvalidRequestError

    try:
        connection = session.connection() if callable(session.connection) else session
        dialect = connection.dialect
        if (dialect.name, dialect.driver) not in _DIALECTS:
            raise InvalidInput(
                f"{asked}: SQLAlchemy speaks {dialect.name}+{dialect.driver} on it; the store is {shown},"
                " create the engine with postgresql+psycopg://"
            )
        driver: Driver = connection.connection.driver_connection
        _refuse_unfit(driver, "create the engine without isolation_level='AUTOCOMMIT'", asked)
        if not connection.in_transaction():
            connection.begin()  # as its own first statement would
    except InvalidRequestError as error:
        raise _refused_by_sqlalchemy(error, asked) from error
    except DBAPIError as error:
        if isinstance(error.orig, psycopg.Error):
            raise translate_error(error.orig, shown) from error
        raise InvalidInput(f"{asked}: {_one_line(error)}; use an engine on the store {shown}") from error
    return driver


def _refused_by_sqlalchemy(error: BaseException, asked: str) -> InvalidInput:
    return InvalidInput(
        f"{asked}: SQLAlchemy says: {_one_line(error)}; roll back, and use an open session or connection on the"
        " store's database"
    )


def _beneath_django(connection: Any, shown: str, asked: str) -> Driver:
    """The driver's connection of Django's, inside ``transaction.atomic()``. Raises InvalidInput, StoreError."""
    from django.core.exceptions import SynchronousOnlyOperation
    from django.db import Error

    if connection.vendor != "postgresql":
        raise InvalidInput(
            f"{asked}: Django's connection is on {connection.vendor}, the store is {shown}; name the database"
            " with it, as in connections['shop']"
        )
    try:
        commits_each = connection.get_autocommit()
    except SynchronousOnlyOperation as error:
        raise InvalidInput(
            f"{asked}: Django's connection was given on an event loop; call app.sync.submit in code without one"
        ) from error
    except Error as error:
        raise InvalidInput(
            f"{asked}: Django says: {_one_line(error)}; use an open connection inside transaction.atomic()"
        ) from error
    if commits_each:
        raise InvalidInput(f"{asked}: no transaction is open on it; call it inside transaction.atomic()")
    if connection.needs_rollback:
        raise InvalidInput(f"{asked}: {WAS_FAILED}")
    driver = connection.connection
    if not isinstance(driver, psycopg.Connection):
        raise InvalidInput(
            f"{asked}: Django speaks {type(driver).__module__.partition('.')[0]} on it; install psycopg 3"
            " (psycopg[binary]), which it prefers"
        )
    _refuse_unfit(driver, "call it inside transaction.atomic()", asked)
    return driver
