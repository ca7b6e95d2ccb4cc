"""Ordered, recorded migrations: numbered files, each applied once, all or nothing."""

import sqlite3
from collections.abc import Iterator
from importlib import resources
from typing import NamedTuple

from ..errors import SchemaOutdated


class Migration(NamedTuple):
    """One numbered file."""

    number: int
    name: str
    sql: str


def migrations(package: str) -> list[Migration]:
    """The migrations of a store's package, in order."""
    files = sorted(resources.files(package).joinpath("migrations").iterdir(), key=lambda file: file.name)
    found = [(file.name.removesuffix(".sql"), file.read_text()) for file in files if file.name.endswith(".sql")]
    return [Migration(int(name.split("_", 1)[0]), name, sql) for name, sql in found]


def statements(sql: str) -> Iterator[str]:
    """The statements of a script, one by one, so that they can share a transaction."""
    statement = ""
    for line in sql.splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""


def applied_number(connection: sqlite3.Connection) -> int:
    """The number of the last migration applied to a file; 0 when it has none."""
    found = connection.execute("SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'arriero_migration'")
    if found.fetchone() is None:
        return 0
    number: int = connection.execute("SELECT coalesce(max(number), 0) FROM arriero_migration").fetchone()[0]
    return number


def migrate_sqlite(connection: sqlite3.Connection, known: list[Migration], now: int) -> None:
    """Bring a file to today's schema, inside the caller's transaction.

    Raises: SchemaOutdated - the file was written by a newer release.
    """
    connection.execute(
        "CREATE TABLE IF NOT EXISTS arriero_migration"
        " (number INTEGER PRIMARY KEY, name TEXT NOT NULL, applied_at INTEGER NOT NULL)"
    )
    applied = applied_number(connection)
    if applied > known[-1].number:
        raise SchemaOutdated(
            f"its schema is number {applied}, this release of arriero knows {known[-1].number}:"
            " install the newer release that wrote it"
        )
    for migration in known:
        if migration.number > applied:
            for statement in statements(migration.sql):
                connection.execute(statement)
            connection.execute(
                "INSERT INTO arriero_migration VALUES (?, ?, ?)", (migration.number, migration.name, now)
            )
