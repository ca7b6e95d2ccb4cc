"""Statements that travel together, and their answers: on libpq, as the driver wraps it.

A cursor of the driver costs about 50 us for each statement; of what a transaction of a few rows takes that was more than
half (docs/adr/0026). Connections, values, rows and errors are the driver's as everywhere else.
"""

import re
import select
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from typing import Any

import msgspec
import psycopg
from psycopg import pq
from psycopg.abc import Buffer
from psycopg.adapt import PyFormat, Transformer
from psycopg.errors import error_from_result

Row = tuple[Any, ...]
StatementKey = tuple[bytes, tuple[int, ...]]  # a prepared statement: its text, and of which types its parameters are
READABLE, WRITABLE = select.POLLIN, select.POLLOUT
PREPARED_MAX = 500  # of a connection: what comes after that is planned each time
_as_json = msgspec.json.Encoder().encode
PLACEHOLDER = re.compile(r"%\((\w+)\)s")


class Statement(msgspec.Struct, frozen=True):
    """A statement as the server takes it: parameters by number."""

    sql: bytes
    names: tuple[str, ...]  # of the parameters, in the order of their numbers
    formats: tuple[PyFormat, ...]


@lru_cache(1024)
def parse_statement(text: str) -> Statement:
    """A statement with its parameters by name, ``%(name)s``."""
    names = tuple(dict.fromkeys(PLACEHOLDER.findall(text)))
    numbers = {name: f"${number}" for number, name in enumerate(names, 1)}
    sql = PLACEHOLDER.sub(lambda found: numbers[found[1]], text)
    return Statement(sql.encode(), names, (PyFormat.AUTO,) * len(names))


class PendingAnswer:
    """A sent statement. Reading its answer waits for the server."""

    __slots__ = ("_pipeline", "result")

    def __init__(self, pipeline: "Pipeline") -> None:
        self._pipeline = pipeline
        self.result: pq.abc.PGresult | None = None

    def _wait_for_result(self) -> pq.abc.PGresult:
        if self.result is None:
            self._pipeline.arrive()
        assert self.result is not None
        return self.result

    def fetchall(self) -> list[Row]:
        """All rows."""
        result = self._wait_for_result()
        return self._pipeline.load_rows(result, result.ntuples)

    def fetchone(self) -> Row | None:
        """The first row."""
        result = self._wait_for_result()
        return self._pipeline.load_rows(result, 1)[0] if result.ntuples else None

    @property
    def rowcount(self) -> int:
        """The number of rows read or written."""
        return self._wait_for_result().command_tuples or 0

    @property
    def statusmessage(self) -> str:
        """The server's name for the command, as COMMIT."""
        return (self._wait_for_result().command_status or b"").decode()


class Pipeline:
    """The statements of one connection in autocommit mode, which nobody else uses between ``enter`` and ``leave``.

    ``prepares``: whether the server is to keep what it has parsed and planned.
    """

    def __init__(self, connection: psycopg.Connection[Any], *, prepares: bool) -> None:
        self._libpq = connection.pgconn
        self._libpq.nonblocking = 1
        self._encoding = connection.info.encoding
        self._transformer = Transformer.from_context(connection)
        self._prepares = prepares
        self._prepared: dict[StatementKey, bytes] = {}
        self._count = 0
        self._under_way: deque[PendingAnswer | StatementKey] = deque()
        self._poll = select.poll()

    def enter(self) -> None:
        """Begin to send statements without waiting for each answer."""
        self._libpq.enter_pipeline_mode()

    def leave(self) -> None:
        """Leave the pipeline mode, once all answers are here."""
        self._libpq.exit_pipeline_mode()
        while self._libpq.notifies() is not None:  # a pooler may bring what others have listened for
            pass

    def ask(self, text: str, parameters: Mapping[str, Any] | None = None) -> PendingAnswer:
        """Send a statement, with its next one or on ``arrive``. Raises psycopg.Error."""
        statement = parse_statement(text)
        given, transformer = parameters or {}, self._transformer
        values = transformer.dump_sequence([given[name] for name in statement.names], statement.formats)
        return self._send(statement.sql, values, transformer.types or (), transformer.formats)

    def ask_with_fields(self, text: str, fields: Iterable[object]) -> PendingAnswer:
        """The same with the values of its parameters in their order, all in the text that JSON has for them.

        Their types are what the statement says: an integer of the driver is of another one for each size of it, and so
        would be the statement.
        """
        return self._send(parse_statement(text).sql, [self._encode(value) for value in fields], (), None)

    def _encode(self, value: object) -> bytes | None:
        if value is None:
            return None
        if not isinstance(value, str):
            return _as_json(value)
        if "\0" in value:  # libpq would take it for the end
            raise psycopg.DataError("PostgreSQL text fields cannot contain NUL (0x00) bytes")
        return value.encode(self._encoding)

    def _send(
        self, sql: bytes, values: Sequence[Buffer | None], types: tuple[int, ...], formats: Sequence[pq.Format] | None
    ) -> PendingAnswer:
        name = self._find_name(sql, types)
        if name is None:
            self._libpq.send_query_params(sql, values, types or None, formats)
        else:
            self._libpq.send_query_prepared(name, values, formats)
        asked = PendingAnswer(self)
        self._under_way.append(asked)
        return asked

    def _find_name(self, sql: bytes, types: tuple[int, ...]) -> bytes | None:
        key = (sql, types)
        if (name := self._prepared.get(key)) is None:
            if not self._prepares or len(self._prepared) >= PREPARED_MAX:
                return None
            self._count += 1
            name = self._prepared[key] = b"arriero_%d" % self._count
            self._libpq.send_prepare(name, sql, types or None)
            self._under_way.append(key)
        return name

    def arrive(self) -> None:
        """Wait for the answers to all that was asked. Raises psycopg.Error: the first of them."""
        failed: psycopg.Error | None = None
        try:
            self._expect_life()
            self._libpq.pipeline_sync()
            self._flush()
            while (result := self._next()).status != pq.ExecStatus.PIPELINE_SYNC:
                error = self._keep(result)
                failed = failed or error
        except psycopg.OperationalError as lost:
            raise failed or lost from None  # the server's last words say more than that it hung up
        if failed is not None:
            raise failed

    def _flush(self) -> None:
        """The server may want to be read from before it reads on."""
        while self._libpq.flush():
            if self._wait(WRITABLE | READABLE) & READABLE:
                self._libpq.consume_input()

    def _wait(self, wanted: int) -> int:
        """Wait until the connection is readable, writable or ended; return the poll events."""
        self._poll.register(self._libpq.socket, wanted)
        ((_, events),) = self._poll.poll()
        return events

    def _next(self) -> pq.abc.PGresult:
        libpq = self._libpq
        while True:
            while libpq.is_busy():
                self._wait(READABLE)
                libpq.consume_input()
            if (result := libpq.get_result()) is not None:
                return result
            self._expect_life()

    def _expect_life(self) -> None:
        if self._libpq.status == pq.ConnStatus.BAD:
            raise psycopg.OperationalError(self._libpq.get_error_message(self._encoding) or "the connection is lost")

    def _keep(self, result: pq.abc.PGresult) -> psycopg.Error | None:
        """The answer to whatever was asked first; if nothing was, the server's last words."""
        if not self._under_way:
            return error_from_result(result, self._encoding)
        asked = self._under_way.popleft()
        is_good = result.status in (pq.ExecStatus.TUPLES_OK, pq.ExecStatus.COMMAND_OK)
        if isinstance(asked, PendingAnswer):
            asked.result = result if is_good else None
        elif not is_good:
            del self._prepared[asked]
        if is_good or result.status == pq.ExecStatus.PIPELINE_ABORTED:
            return None
        return error_from_result(result, self._encoding)

    def give_up(self) -> None:
        """After an error: roll back, and leave. Raises psycopg.Error when the connection is of no more use."""
        with suppress(psycopg.Error):  # a second error, or the first one if it was not the server's
            self.arrive()
        self.ask("ROLLBACK")
        self.arrive()
        self.leave()

    def load_rows(self, result: pq.abc.PGresult, count: int) -> list[Row]:
        """The first rows of an answer."""
        self._transformer.set_pgresult(result)
        try:
            return self._transformer.load_rows(0, count, tuple)
        finally:
            self._transformer.set_pgresult(None)  # it is kept by who asked, and no longer
