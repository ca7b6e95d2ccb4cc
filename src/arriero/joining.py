"""Submitting a task inside the caller's own transaction, so that both stand or fall together."""

from typing import TYPE_CHECKING, Any

from .commands import Refusal, Submit, Submitted
from .errors import InvalidInput, NotYetBuilt
from .store.base import StateStore

if TYPE_CHECKING:
    import sqlite3


def submit_joined(store: StateStore, command: Submit, connection: Any) -> Submitted | Refusal:
    """Keep a task by the caller's connection and in the transaction it has open; nothing is committed here.

    Runs in the caller's thread. Raises: InvalidInput - the connection or its transaction is not fit; TransactionConflict
    - another transaction came first; StoreError.
    """
    import sqlite3  # only who joins a transaction pays for loading it

    from .store.sqlite.store import SqliteStore

    if not isinstance(store, SqliteStore):
        raise InvalidInput(
            f"submit(connection=): the store {store.url} has no transactions of yours to join; use sqlite:///PATH"
        )
    if not isinstance(connection, sqlite3.Connection):
        kind = type(connection).__module__.split(".")[0]
        if kind in ("sqlalchemy", "psycopg"):
            raise NotYetBuilt(f"submit(connection=) with {kind}: it comes with PostgreSQL; use arriero.connect(store)")
        raise InvalidInput(f"submit(connection=) takes a sqlite3.Connection, not {connection!r}; see arriero.connect")
    return store.submit_joined(command, connection)


def connect(store: str) -> "sqlite3.Connection":
    """A connection fit for joint transactions: your own tables and ``submit(connection=)`` commit together.

    Args:
        store: URL, ``sqlite:///PATH``.
    Returns: a ``sqlite3.Connection`` as the standard library opens it (a statement that writes begins a transaction,
        ``with`` commits or rolls back and does not close), in WAL mode with ``synchronous=FULL`` and without automatic
        checkpoints.
    Raises: InvalidInput - another kind of store; StoreError - the file cannot be opened.
    """
    from .store import open_store
    from .store.sqlite.connection import connect_for_callers
    from .store.sqlite.store import SqliteStore

    opened = open_store(store)
    if not isinstance(opened, SqliteStore):
        raise InvalidInput(f"arriero.connect: {store!r} is no file; use sqlite:///PATH")
    return connect_for_callers(opened.path)
