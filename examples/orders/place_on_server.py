"""A database on PostgreSQL: the tasks in a schema of their own, the shop's table in another one beside it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import parse_qs, urlsplit

import psycopg

import arriero
from arriero.store.postgres.target import target_of

from .places import NotReadable, UnusablePlace

LOCK_SECONDS_MAX = 10
"""How long the last session of a killed worker may take to be gone, before its schema is left behind."""

Session = psycopg.Connection[tuple[Any, ...]]


def named_schema(url: str) -> str | None:
    """The schema that a URL names."""
    return parse_qs(urlsplit(url).query).get("schema", [None])[-1]


def with_schema(url: str, schema: str) -> str:
    """The URL, naming a schema."""
    return f"{url}{'&' if '?' in url else '?'}schema={schema}"


class ServerPlace:
    """See ``Place``. The other schemas of the database are not touched."""

    conflicts = (
        arriero.TransactionConflict,
        psycopg.errors.SerializationFailure,
        psycopg.errors.DeadlockDetected,
    )

    def __init__(self, url: str) -> None:
        target = target_of(url)
        self.url = url
        self.announcement = f"the tasks are in {target.shown}"
        self._shown = target.shown
        self._conninfo = target.conninfo
        self._schema = target.schema
        self._shop_schema = f"{target.schema}_shop"
        self._reader: Session | None = None
        self.tables = {
            **{name: f"{target.schema}.{name}" for name in ("task", "step", "process", "breaker", "lease")},
            "shop_order": f"{self._shop_schema}.shop_order",
            "mark": "%s",
        }

    @contextmanager
    def made(self, *, keep: bool) -> Iterator[None]:
        """Make both schemas, and drop them at the end unless they shall be kept."""
        self._make()
        try:
            yield
        finally:
            self._close_reader()
            if not keep:
                self._drop()

    def _make(self) -> None:
        try:
            with self._open() as connection, connection.transaction():
                for schema in (self._schema, self._shop_schema):
                    connection.execute(f"CREATE SCHEMA {schema}".encode())
        except psycopg.errors.DuplicateSchema as error:
            raise UnusablePlace(
                f"{self._shown}: {_one_line(error)}: the demo balances its books from nothing, name a fresh schema or none"
            ) from error
        except psycopg.Error as error:
            raise UnusablePlace(f"{self._shown}: {_one_line(error)}") from error

    def _drop(self) -> None:
        both = f"{self._schema}, {self._shop_schema}"
        try:
            with self._open() as connection:
                connection.execute(f"SET lock_timeout = '{LOCK_SECONDS_MAX}s'".encode())
                connection.execute(f"DROP SCHEMA {both} CASCADE".encode())
        except psycopg.Error as error:
            print(f"{self._shown}: the schemas {both} are left behind: {_one_line(error)}", file=sys.stderr)

    @contextmanager
    def reading(self) -> Iterator[Session]:
        """On one connection for all looks: the server starts a process for each one that is made."""
        try:
            if self._reader is None:
                self._reader = self._open()
            with self._reader.transaction():
                self._reader.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
                yield self._reader
        except psycopg.Error as error:
            self._close_reader()
            raise NotReadable(f"{self._shown}: {_one_line(error)}") from error

    def _close_reader(self) -> None:
        reader, self._reader = self._reader, None
        if reader is not None:
            reader.close()

    @contextmanager
    def connected(self) -> Iterator[Session]:
        with self._open() as connection:
            yield connection

    @contextmanager
    def transaction(self, connection: Session) -> Iterator[None]:
        with connection.transaction():
            yield

    def space_statements(self) -> tuple[str, ...]:
        return (f"CREATE SCHEMA IF NOT EXISTS {self._shop_schema}",)

    def _open(self) -> Session:
        # Nothing is prepared, so that a pooler may stand in between.
        return psycopg.connect(self._conninfo, autocommit=True, prepare_threshold=None)


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())
