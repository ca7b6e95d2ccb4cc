"""The state store: the durable record and the only truth."""

from typing import TYPE_CHECKING

from ..errors import InvalidInput, StoreError, describe_install
from ..text.escaping import mask_url

if TYPE_CHECKING:  # sqlite3 and the operations are loaded when a store is opened
    from .migrate import Schema
    from .state_store import StateStore

MEMORY = "memory://"  # the URL of a store that dies with its process
IN_MEMORY = ":memory:"  # what SQLite means by it; as a path it would be a file of that name
POSTGRES = ("postgresql", "postgres")


def open_store(url: str, *, reads_only: bool = False) -> "StateStore":
    """A store for a URL; nothing is opened yet.

    Args:
        url: ``sqlite:///relative.db``, ``sqlite:////absolute.db``, ``postgresql://USER@HOST/DATABASE`` or ``memory://``.
        reads_only: see ``existing_store``.
    Raises: InvalidInput - an unknown scheme, or a driver that is not installed.
    """
    if (path := _path_of(url)) is not None:
        from .sqlite.store import SqliteStore

        return SqliteStore(path, reads_only=reads_only)
    if url == MEMORY:
        from .memory.store import MemoryStore

        return MemoryStore()
    _need_postgres(url)
    from .postgres.store import PostgresStore

    return PostgresStore(url)


def existing_store(url: str, *, reads_only: bool = False) -> "StateStore":
    """A store that a caller made before: for those who only read, and must not make one by a slip of the pen.

    Args:
        reads_only: a file of SQLite is opened so that nothing can be written, and is not migrated. A server's database is never
            migrated by who opens it; the rights of the role say what can be written.
    Raises: InvalidInput - an unknown scheme; StoreError - there is no such file or no such tables, or they are not ours.
    """
    store = open_store(url, reads_only=reads_only)
    if (path := getattr(store, "path", None)) is not None:
        _refuse_absent_file(path)
    elif url != MEMORY:
        from .postgres.migrating import refuse_absent

        refuse_absent(url)
    return store


def _refuse_absent_file(path: str) -> None:
    from pathlib import Path

    from .sqlite.connection import holds_store

    if not Path(path).exists():
        raise StoreError(f"store {path}: there is no such file; name the right one with --store or ARRIERO_STORE")
    if Path(path).is_file() and not holds_store(path):
        raise StoreError(
            f"store {path}: it holds no tasks of arriero; name the right file with --store or ARRIERO_STORE"
        )


def schema_of(url: str) -> "Schema":
    """The schema of a store that is shared; nothing is opened yet.

    Raises: InvalidInput - an unknown scheme, a store that has no schema, or a driver that is not installed.
    """
    if (path := _path_of(url)) is not None:
        from .sqlite.schema import SqliteSchema

        return SqliteSchema(path)
    _need_postgres(url)
    from .postgres.migrating import PostgresSchema

    return PostgresSchema(url)


def _path_of(url: str) -> str | None:
    """The file that a URL names, as it stands there; None: it names another store."""
    if "\0" in url:
        raise InvalidInput(f"store {mask_url(url)!r} holds a NUL character; use sqlite:///PATH")
    scheme, separator, rest = url.partition("://")
    if not separator or scheme != "sqlite" or not rest.startswith("/") or len(rest) == 1:
        return None
    if rest[1:].lstrip("/") == IN_MEMORY:
        raise InvalidInput(
            f"store {url!r}: a SQLite database in memory cannot be shared by two connections, and dies with them; name a file,"
            " sqlite:///PATH; in tests use arriero.testing.running(app), which has a store in memory"
        )
    return rest[1:]


def _need_postgres(url: str) -> None:
    scheme, separator, _ = url.partition("://")
    if not separator or scheme not in POSTGRES:
        raise InvalidInput(
            f"store {mask_url(url)!r} is not known; use sqlite:///PATH (four slashes for an absolute path)"
            " or postgresql://USER@HOST/DATABASE"
        )
    try:
        import psycopg  # noqa: F401  # an optional dependency
    except ImportError as error:
        raise InvalidInput(f"a store on PostgreSQL needs the driver psycopg: {describe_install('postgres')}") from error
