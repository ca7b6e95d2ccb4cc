"""Submitting a task inside the caller's own transaction, so that both stand or fall together."""

from collections.abc import Awaitable
from typing import TYPE_CHECKING, Any

from .commands import Refusal, Submit, Submitted
from .errors import InvalidInput
from .store.base import StateStore

if TYPE_CHECKING:
    import sqlite3


def submit_joined(
    store: StateStore, command: Submit, connection: Any
) -> Submitted | Refusal | Awaitable[Submitted | Refusal]:
    """Keep a task by the caller's connection and in the transaction it has open; nothing is committed here.

    Runs in the caller's thread; to be awaited where the connection is an async one. Raises: InvalidInput - the connection
    or its transaction is not fit; TransactionConflict - another transaction came first; StoreError.
    """
    join = getattr(store, "submit_joined", None)
    if join is None:
        raise InvalidInput(
            f"submit(connection=): the store {store.url} has no transactions of yours to join; use sqlite:///PATH or"
            " postgresql://HOST/DATABASE"
        )
    import sqlite3  # only who joins a transaction pays for loading it

    is_file = store.url.startswith("sqlite:")
    if is_file and not isinstance(connection, sqlite3.Connection):
        raise InvalidInput(
            f"submit(connection=) takes a sqlite3.Connection for the store {store.url}, not {connection!r};"
            " see arriero.connect"
        )
    answer: Submitted | Refusal | Awaitable[Submitted | Refusal] = join(command, connection)
    return answer


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
