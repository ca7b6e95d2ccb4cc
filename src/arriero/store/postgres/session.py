"""One connection of a store, used by one thread at a time: transactions, and what is known of them afterwards."""

import os
import random
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Protocol, TypeVar

import msgspec
import psycopg
from psycopg.errors import Diagnostic

from ...errors import ArrieroError, StoreError
from ...system.loops import Loop, LoopGuard
from .. import columns
from ..columns import load_statements
from .columns import Write
from .connect_pauses import ConnectPauses
from .pipeline import PendingAnswer, Pipeline
from .target import Target
from .translating import CONFLICTS, READ_ONLY, translate_error, unfit

LOOK_SECONDS = 0.25  # between looks, while anybody waits
REST_SECONDS = 0.5  # without anybody who waits, after which its thread ends


class Waits(Protocol):
    """Something that may wait for a server."""

    def cut(self) -> None:
        """End the wait; called in the watchdog's thread."""
        ...


class Watchdog:
    """Ends waits for servers that do not answer: one thread of the process, begun when first needed, also after a fork.

    No setting of driver or server bounds them all: a stopped server's kernel still acknowledges what it is sent, and no
    time-out of the server ends a commit's wait for the standby.
    """

    def __init__(self) -> None:
        self._due: dict[Waits, float] = {}
        self._somebody = threading.Condition()
        self._thread: threading.Thread | None = None

    def watch(self, waits: Waits, seconds: float) -> None:
        """Cut it after so long, again and again, unless ``forget`` comes before."""
        with self._somebody:
            self._due[waits] = time.monotonic() + seconds
            if self._thread is None or not self._thread.is_alive():  # the first one, after a fork, after a rest
                thread = threading.Thread(target=self._run, name="arriero-watchdog", daemon=True)
                try:
                    thread.start()
                except BaseException:
                    del self._due[waits]
                    raise
                self._thread = thread
            elif len(self._due) == 1:
                self._somebody.notify()

    def forget(self, waits: Waits) -> None:
        """Stop watching something that waits no more."""
        with self._somebody:
            self._due.pop(waits, None)

    def _run(self) -> None:
        guard = LoopGuard(Loop.WATCHDOG, time.monotonic)
        while True:
            with self._somebody:
                if not self._due and not self._somebody.wait_for(lambda: self._due, REST_SECONDS):
                    self._thread = None  # nobody has waited for a while: no store is open
                    return
                now = time.monotonic()
                late = [waits for waits, due in self._due.items() if due <= now]
            for waits in late:
                with guard:
                    waits.cut()
            time.sleep(LOOK_SECONDS)  # not woken by each transaction


WATCHDOG = Watchdog()


T = TypeVar("T")
CONFLICTS_MAX = 30  # in a row: then another process is notified
CONFLICT_SECONDS = 0.005  # the first pause after one, by chance shorter; doubled each time, up to
CONFLICT_SECONDS_MAX = 0.2
# After these a connection is made again: the server is not a primary any longer; a statement that it had prepared has gone, or
# its tables have changed.
UNUSABLE = frozenset({READ_ONLY, "26000", "0A000"})
SERVER_VERSION_MIN = 150000
ENCODING = "UTF8"  # of a database: any other lacks characters, and then neither a result nor an error can be recorded
ANSWER_SECONDS = 2.0  # on top of the longest statement: then a transaction that is not answered is given up


class Undecided(Exception):
    """The answer to COMMIT was lost, or its wait for the standby was cut short: nobody here knows whether it holds.

    ``result``: what the transaction's work had answered.
    """

    def __init__(self, result: Any, error: StoreError) -> None:
        super().__init__(str(error))
        self.result = result
        self.error = error


class TransactionLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Limits of a transaction in seconds: for a lock, for one statement, and for the pause before the next one.

    ``by_index``: its statements find every row by an index, however few or many there are. ``planned_once``: so that their
    plans need not be made again for other parameters.
    """

    lock: float
    statement: float
    idle: float = 10.0
    by_index: bool = False
    planned_once: bool = False

    def parameters(self, *, local: bool) -> dict[str, str | bool]:
        """Parameters of the statement ``settings``. ``local``: for one transaction only."""
        waits = {name: f"{round(getattr(self, name) * 1000)}ms" for name in ("lock", "statement", "idle")}
        plans, others = ("force_generic_plan", "off") if self.planned_once else ("force_custom_plan", "on")
        whole = "off" if self.by_index else "on"
        return {**waits, "plans": plans, "others": others, "whole": whole, "local": local}


class Statements:
    """The statements in ``queries``, with the schema's name and the columns in them."""

    def __init__(self, schema: str) -> None:
        self._words = {
            "{schema}": schema,
            "{task}": columns.list_columns(columns.TASK),
            "{edit}": columns.list_columns(columns.EDIT),
            "{late_answer}": columns.list_columns(columns.LATE_ANSWER),
            "{t.task}": columns.list_columns(columns.TASK, "t"),
            "{step}": columns.list_columns(columns.STEP),
            "{s.step}": columns.list_columns(columns.STEP, "s"),
            "{convoy}": columns.list_columns(columns.CONVOY),
            "{c.convoy}": columns.list_columns(columns.CONVOY, "c"),
            "{tail}": columns.list_columns(columns.TAIL),
            # Of a task under the name t, as JSON; null: it is in no convoy.
            "{t.convoy}": "(SELECT row_to_json(c)::text FROM "
            + schema
            + ".convoy AS c WHERE c.convoy_no = t.convoy_no)",
            "{s.t.task}": columns.list_columns(columns.TASK, "(s.t)"),
            # Whether code here may continue a task; one that has not begun may begin with any. See select_claimable.
            "{knows_version}": "(started_at IS NULL OR CASE WHEN code_version IS NULL"
            " THEN NOT workflow = ANY(%(without_first)s::text[])"
            " ELSE workflow || ' ' || code_version = ANY(%(versions)s::text[]) END)",
            # The store's clock. What now_at does, written out: a function is planned again at each call.
            "{now}": "coalesce(%(given)s::bigint, greatest("
            "(extract(epoch FROM clock_timestamp()) * 1000000)::bigint"
            + f" + (SELECT value::bigint FROM {schema}.meta WHERE name = 'clock_offset'),"
            + f" (SELECT max(renewed_at) FROM {schema}.process)))",
        }
        self._filled: dict[str, str] = {}

    def __call__(self, name: str) -> str:
        """A statement of ``queries`` by its name."""
        return self.fill(load_statements(__package__)[name])

    def fill(self, sql: str) -> str:
        """A statement with its words replaced."""
        if (filled := self._filled.get(sql)) is None:
            filled = sql
            for word, text in self._words.items():
                filled = filled.replace(word, text)
            self._filled[sql] = filled
        return filled


def is_direct(connection: psycopg.Connection[Any]) -> bool:
    """Returns True if no pooler stands between: one gives its clients another number than the back end's."""
    found = connection.execute("SELECT pg_backend_pid()").fetchone()
    return found is not None and found[0] == connection.info.backend_pid


def find_unfit(connection: psycopg.Connection[Any]) -> str | None:
    """Find what makes a server or database unfit for a store, with the remedy. None: it is fit."""
    if connection.info.server_version < SERVER_VERSION_MIN:
        return f"the server is PostgreSQL {connection.info.server_version // 10_000}; use 15 or newer"
    encoding = connection.info.parameter_status("server_encoding")
    if encoding != ENCODING:
        return (
            f"the encoding of the database is {encoding}, which cannot keep every text that a service may answer; make another"
            f" one with CREATE DATABASE NAME ENCODING '{ENCODING}' LOCALE 'C' TEMPLATE template0 and name it in the URL"
            " (pg_dump and psql convert what is there)"
        )
    return None


def hang_up(connection: psycopg.Connection[Any]) -> None:
    """End whatever another thread waits for on it: that thread gets an error, and closes it."""
    if not connection.closed:
        with suppress(OSError, psycopg.Error), socket.socket(fileno=os.dup(connection.fileno())) as peer:
            peer.shutdown(socket.SHUT_RDWR)


def is_kept(commit: PendingAnswer | None) -> bool:
    """Returns True if the server has confirmed the COMMIT."""
    return commit is not None and commit.result is not None and commit.statusmessage == "COMMIT"


def is_silence(connection: psycopg.Connection[Any], error: BaseException) -> bool:
    """Returns True if an error leaves the outcome open: an ordinary error of the server means that it rolled back."""
    if connection.closed or connection.broken:
        return True
    return isinstance(error, psycopg.Error) and error.diag.severity_nonlocalized != "ERROR"


class Transaction:
    """Statements inside a transaction, sent without waiting until ``arrive``."""

    def __init__(self, pipeline: Pipeline, statements: Statements) -> None:
        self._pipeline = pipeline
        self._statements = statements

    def ask(self, name: str, parameters: Mapping[str, Any] | None = None) -> PendingAnswer:
        """Execute a statement of ``queries``."""
        return self._pipeline.ask(self._statements(name), parameters)

    def statement(self, name: str) -> str:
        """A statement of ``queries``, for a statement that is made of it."""
        return self._statements(name)

    def write(self, write: Write, rows: Sequence[Any]) -> PendingAnswer:
        """Write rows, at least one."""
        if len(rows) == 1:
            return self._pipeline.ask_with_fields(self._statements.fill(write.of_one), write.fields(rows[0]))
        return self._pipeline.ask(self._statements.fill(write.of_many), {"rows": write.as_json(rows)})

    def arrive(self) -> None:
        """Wait for the answers to all that was asked.

        The server counts a transaction as idle, and ends it after the limit, only from here on: the one who stops
        during one, with rows locked, must not stop the others.
        """
        self._pipeline.arrive()

    def plain(self, sql: str, parameters: Mapping[str, Any] | None = None) -> PendingAnswer:
        """Execute a statement of another process."""
        return self._pipeline.ask(self._statements.fill(sql), parameters)


class PostgresSession:
    """A connection that is made when it is needed, and made again when it was lost.

    Args:
        begin: how transactions begin.
        limits: of each transaction.
        on_undecided: called before anybody else can read what may not be durable.
        pauses: between tries to connect, shared with the other connections of the store.
    """

    def __init__(
        self,
        target: Target,
        statements: Statements,
        *,
        limits: TransactionLimits,
        begin: str = "BEGIN",
        on_undecided: Callable[[], None] = lambda: None,
        pauses: ConnectPauses | None = None,
    ) -> None:
        self._target = target
        self._statements = statements
        self._limits = limits
        self._answer_seconds = limits.statement + ANSWER_SECONDS
        self._begin = begin
        self._on_undecided = on_undecided
        self._connection: psycopg.Connection[tuple[Any, ...]] | None = None
        self._pipeline: Pipeline | None = None  # of the connection
        self._is_direct = False  # whether no pooler stands between
        self._is_set = False  # whether the connection has the settings of transactions permanently
        self._pauses = pauses or ConnectPauses()
        self._wait_was_cut = False
        self._cutting = threading.Lock()

    # --- the connection
    def get_connection(self) -> psycopg.Connection[tuple[Any, ...]]:
        """The connection, in autocommit mode. Raises NotConnected."""
        if self._connection is not None and self._connection.closed:
            self.close()
        if self._connection is None:
            with self._pauses.trying():
                self._connection = self._connect()
        return self._connection

    def _connect(self) -> psycopg.Connection[tuple[Any, ...]]:
        try:
            self._connection = connection = psycopg.connect(
                self._target.conninfo, autocommit=True, prepare_threshold=None
            )
            with self.watch():
                self._is_direct, self._is_set = is_direct(connection), False
                prepares = self._is_direct if self._target.prepare is None else self._target.prepare
                self._pipeline = Pipeline(connection, prepares=prepares)
        except (psycopg.Error, UnicodeError) as error:
            self.close()
            raise self.translate_error(error) from error
        if (fault := find_unfit(connection)) is not None:
            self.close()
            raise StoreError(f"store {self._target.shown}: {fault}")
        connection.add_notice_handler(self._on_notice)
        connection.add_notify_handler(lambda _: None)  # a pooler may bring what others have listened for
        return connection

    def translate_error(self, error: Exception) -> StoreError:
        """An error of the driver as ours."""
        if isinstance(error, psycopg.Error):
            return translate_error(error, self._target.shown)
        return StoreError(f"store {self._target.shown}: {error}; look at the host's name in the URL")

    def _on_notice(self, notice: Diagnostic) -> None:
        """The server confirms a commit whose wait for the standby was cut short, with only a warning."""
        if notice.severity_nonlocalized == "WARNING" and notice.sqlstate in ("01000", "57P01"):
            self._wait_was_cut = True

    def close(self) -> None:
        """Release it; it may be used again."""
        self._pipeline = None
        with self._cutting:
            connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(psycopg.Error):
                connection.close()

    def cut(self) -> None:
        """End a wait for a server that does not answer. From another thread."""
        with self._cutting:
            if self._connection is not None:
                hang_up(self._connection)

    # --- transactions
    def begin_snapshot(self) -> None:
        """Begin a transaction that only reads, from one snapshot; the caller ends it. Raises psycopg.Error, StoreError."""
        was_there = self._connection
        connection = self.get_connection()
        try:
            self._begin_snapshot(connection)
        except psycopg.Error:
            if connection is not was_there or not connection.closed:
                raise
            self._begin_snapshot(self.get_connection())  # as in ``_once``

    def _begin_snapshot(self, connection: psycopg.Connection[tuple[Any, ...]]) -> None:
        connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
        limits = msgspec.structs.replace(self._limits, idle=0.0)  # who reads page by page may take its time
        connection.execute(self._statements("settings").encode(), limits.parameters(local=True))

    def transact(self, work: Callable[[Transaction], T]) -> T:
        """All that ``work`` does, or nothing when it raises. It may be run more than once.

        Raises: StoreError, InvalidInput for a value that cannot be kept - definitely nothing was written; Undecided - it may
            have been.
        """
        pause = CONFLICT_SECONDS
        for _ in range(CONFLICTS_MAX):
            try:
                return self._once(work)
            except (psycopg.DataError, UnicodeError) as error:
                raise unfit(error, self._target.shown) from error
            except psycopg.Error as error:
                if error.sqlstate not in CONFLICTS:
                    raise self.translate_error(error) from error
                conflict = error
            time.sleep(random.uniform(0, pause))
            pause = min(pause * 2, CONFLICT_SECONDS_MAX)
        raise self.translate_error(conflict) from conflict

    def _once(self, work: Callable[[Transaction], T]) -> T:
        was_there = self._connection
        connection = self.get_connection()
        try:
            with self.watch():
                return self._on(connection, work)
        except (psycopg.Error, StoreError):
            if connection is not was_there or not connection.closed:
                raise
        # It had been ended while nobody used it, and nothing was committed on it: a new one says what is true.
        connection = self.get_connection()
        with self.watch():
            return self._on(connection, work)

    @contextmanager
    def watch(self) -> Iterator[None]:
        """Give up the statements of this block when no answer comes."""
        WATCHDOG.watch(self, self._answer_seconds)
        try:
            yield
        finally:
            WATCHDOG.forget(self)

    def _set(self, pipeline: Pipeline) -> None:
        """Settings of the connection, if the next transaction will run on it, too: behind a pooler it may not."""
        if self._is_direct and not self._is_set:
            pipeline.ask(self._statements("settings"), self._limits.parameters(local=False))
            pipeline.arrive()
            self._is_set = True

    def _on(self, connection: psycopg.Connection[tuple[Any, ...]], work: Callable[[Transaction], T]) -> T:
        self._wait_was_cut = False
        commit: PendingAnswer | None = None
        assert self._pipeline is not None
        pipeline = self._pipeline
        try:
            pipeline.enter()
            self._set(pipeline)
            pipeline.ask(self._begin)
            if not self._is_set:
                pipeline.ask(self._statements("settings"), self._limits.parameters(local=True))
            result = work(Transaction(pipeline, self._statements))
            commit = pipeline.ask("COMMIT")
            pipeline.arrive()
            if not is_kept(commit):
                raise StoreError(f"store {self._target.shown}: COMMIT was answered {commit.statusmessage}")
            pipeline.leave()
        except BaseException as error:
            if is_kept(commit):
                self.close()  # the server hung up after it had answered
                if not isinstance(error, psycopg.Error):
                    raise
            elif commit is not None and is_silence(connection, error):
                self.close()
                self._on_undecided()
                told = self.translate_error(error) if isinstance(error, Exception) else StoreError(str(error))
                raise Undecided(result, told) from error
            else:
                self._roll_back(pipeline, connection, error)
                raise
        if self._wait_was_cut:
            self._on_undecided()
            raise Undecided(
                result,
                StoreError(
                    f"store {self._target.shown}: the wait for the synchronous standby was cut short;"
                    " let the standby catch up, or change synchronous_standby_names"
                ),
            )
        return result

    def _roll_back(
        self, pipeline: Pipeline, connection: psycopg.Connection[tuple[Any, ...]], error: BaseException
    ) -> None:
        is_ours = isinstance(error, psycopg.Error) and error.sqlstate not in UNUSABLE
        if connection.closed or connection.broken or not (is_ours or isinstance(error, ArrieroError)):
            self.close()  # its transaction ends with it
            return
        try:
            pipeline.give_up()
        except psycopg.Error:
            self.close()
