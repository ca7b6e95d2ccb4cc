"""Ordered, recorded migrations: numbered files, each applied once, all or nothing."""

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from importlib import resources
from operator import attrgetter
from typing import TYPE_CHECKING, NamedTuple, NoReturn, Protocol

import msgspec

from ..errors import SchemaOutdated

if TYPE_CHECKING:
    import sqlite3

TOLERATED = 1  # newer schemas that a release still works with: a migration only adds what the one before lacks
MISSING_NAMED_MAX = 3  # columns, in an error
RECORD = (
    "CREATE TABLE IF NOT EXISTS arriero_migration"
    " (number INTEGER PRIMARY KEY, name TEXT NOT NULL, applied_at INTEGER NOT NULL);"
)


class Migration(NamedTuple):
    """One numbered file."""

    number: int
    name: str
    sql: str


# What a role of the database may do in a store, and how that is granted.
RIGHTS: Mapping[str, str] = {
    "submit": "may submit tasks, and read or change nothing of what is there",
    "read": "may read everything, payloads included, and change nothing",
    "run": "may do what a process needs; it adds to the history, and neither changes nor removes any of it",
    "purge": "may do what a process needs, and purge: remove the history of tasks as a whole",
}


class Grant(NamedTuple):
    """Rights, a key of ``RIGHTS``, for a role of the database. With several grants it has all of them, and no others."""

    rights: str
    role: str


class SchemaState(msgspec.Struct, frozen=True):
    """The state of a store's schema.

    Args:
        number: of the last migration applied; None: there is no schema yet.
        known: what this release knows, in order.
    """

    number: int | None
    known: tuple[Migration, ...]

    @property
    def missing(self) -> list[Migration]:
        """The migrations to apply, in order."""
        return [migration for migration in self.known if migration.number > (self.number or 0)]


class Schema(Protocol):
    """The schema of a store, for those who bring it up to date. All methods raise StoreError, naming the store.

    Args:
        grants: the roles named there have these rights in the schema afterwards, and no others; other roles keep theirs.
    """

    url: str  # without a password

    def state(self) -> SchemaState:
        """Read the schema's state. Raises SchemaOutdated: another program's tables are in its place."""
        ...

    def migrate(self, grants: Sequence[Grant] = ()) -> list[str]:
        """Bring it to this release's, all or nothing; answers the names of what was applied.

        Two at the same time: the second waits, and finds nothing to do. Raises SchemaOutdated: it is of a newer release.
        """
        ...

    def script(self, grants: Sequence[Grant] = ()) -> str:
        """The SQL of ``migrate``, for another process to run."""
        ...


def migrations(package: str) -> list[Migration]:
    """The migrations of a store's package, in order."""
    files = sorted(resources.files(package).joinpath("migrations").iterdir(), key=attrgetter("name"))
    found = [
        (file.name.removesuffix(".sql"), file.read_text(encoding="utf-8"))
        for file in files
        if file.name.endswith(".sql")
    ]
    return [Migration(int(name.split("_", 1)[0]), name, sql) for name, sql in found]


def refuse_newer(number: int, known: Sequence[Migration]) -> None:
    """Raises SchemaOutdated: the schema is newer than this release can work with.

    One migration more than it knows of is tolerated: while a release is replaced, the old one still runs.
    """
    if number > known[-1].number + TOLERATED:
        raise SchemaOutdated(
            f"its schema is number {number}, this release of arriero knows {known[-1].number}:"
            " install the newer release that wrote it"
        )


def is_current(number: int, known: Sequence[Migration]) -> bool:
    """Returns True if a release works with the schema as it is."""
    return 0 <= number - known[-1].number <= TOLERATED


def refuse_unmigrated(number: int, known: Sequence[Migration]) -> None:
    """Refuse to read a file of SQLite that would have to be migrated first. Raises SchemaOutdated."""
    refuse_newer(number, known)
    if not is_current(number, known):
        raise SchemaOutdated(
            f"its schema is number {number}, this release of arriero works with {known[-1].number}, and a file that is only read"
            " is not migrated: copy it, and let a command migrate the copy, like `arriero task list --store sqlite:///COPY`"
        )


UNRELEASED_BUILD = (
    "a build from before the release made it, and it cannot be migrated: export the history with that build, and begin a new"
    " store in another place"
)


# --- SQLite
@cache
def list_columns_of_schema(package: str) -> frozenset[tuple[str, str]]:
    """List the tables of ``schema.sql`` with their columns."""
    text = resources.files(package).joinpath("schema.sql").read_text(encoding="utf-8")
    tables = re.findall(r"^CREATE TABLE (\w+) \((.*?)^\)", text, re.DOTALL | re.MULTILINE)
    return frozenset(
        (table, column) for table, body in tables for column in re.findall(r"^    ([a-z]\w*) [A-Z]", body, re.MULTILINE)
    )


COLUMNS = "SELECT t.name, c.name FROM sqlite_master t, pragma_table_info(t.name) c WHERE t.type = 'table'"


def refuse_missing_columns(missing: frozenset[tuple[str, str]]) -> NoReturn:
    """Raises SchemaOutdated: a build from before the release made the file, with fewer columns under the same number."""
    first = sorted(missing)[:MISSING_NAMED_MAX]
    names = ", ".join(f"{table}.{column}" for table, column in first)
    more = f" and {len(missing) - len(first)} more" if len(missing) > len(first) else ""
    raise SchemaOutdated(f"its tables lack {names}{more}: {UNRELEASED_BUILD}")


def statements(sql: str) -> Iterator[str]:
    """The statements of a script, one by one, so that they can share a transaction."""
    from sqlite3 import complete_statement  # only who opens a file pays for loading it

    statement = ""
    for line in sql.splitlines(keepends=True):
        statement += line
        if complete_statement(statement):
            yield statement
            statement = ""


def read_applied_number(connection: "sqlite3.Connection") -> int:
    """The number of the last migration applied to a file; 0 when it has none."""
    found = connection.execute("SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'arriero_migration'")
    if found.fetchone() is None:
        return 0
    number: int = connection.execute("SELECT coalesce(max(number), 0) FROM arriero_migration").fetchone()[0]
    return number


def build_parts(missing: Sequence[Migration], now: str) -> Iterator[str]:
    """The scripts that apply migrations to a file and record them. ``now``: SQL for the time, in microseconds."""
    yield RECORD
    for migration in missing:
        yield migration.sql
        yield f"INSERT INTO arriero_migration VALUES ({migration.number}, '{migration.name}', {now});"


def migrate_sqlite(connection: "sqlite3.Connection", known: Sequence[Migration], now: int) -> list[str]:
    """Bring a file to today's schema, inside the caller's transaction; answers the names of what was applied.

    Raises: SchemaOutdated - the file was written by a newer release.
    """
    number = read_applied_number(connection)
    refuse_newer(number, known)
    missing = SchemaState(number, tuple(known)).missing
    for part in build_parts(missing, str(now)) if missing else ():
        for statement in statements(f"{part}\n"):
            connection.execute(statement)
    return [migration.name for migration in missing]
