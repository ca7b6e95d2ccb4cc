"""Guards the caller's own transaction by the term of a lease: it commits only while nobody else leads."""

import inspect
import sqlite3
from typing import Any

from ..errors import InvalidInput, LeadershipLost
from ..leases.mutex import Leadership
from ..leases.store import StoreLease
from ..model.leases import LeaseTerm
from ..store.state_store import StateStore
from .external_transaction import ask_patiently


async def guarded(connection: Any, leadership: Leadership) -> None:
    """Guard the transaction that is open on a connection by the term of a leader. Call it before your own writes.

    Nobody else is granted the lease before the transaction ends, so what it writes was written by the leader. Keep it short:
    the next leader waits for it. On PostgreSQL the server ends a transaction that is blocked for the duration of the
    lease, so that a leader that froze bars nobody for longer.

    Args:
        connection: open on the store's database, in a transaction: any that ``submit(connection=)`` takes.
        leadership: of a lease in that store.
    Raises: LeadershipLost - another one leads, or an operator broke the lease: roll back; InvalidInput - the lease is not in a
        store, or the connection is not fit; TransactionConflict - roll back and run the transaction again; StoreError.
    """
    term, store = _build_term(leadership), _find_store(connection, leadership)
    if isinstance(connection, sqlite3.Connection):
        from ..store.sqlite.store import SqliteStore  # only who is guarded on a file pays for loading it

        assert isinstance(store, SqliteStore)
        on_file = store
        found = await ask_patiently(
            connection, on_file.path, lambda: on_file.check_term(term, connection, at_once=True)
        )
    else:
        answer = store.check_term(term, connection)  # type: ignore[attr-defined]  # see _find_store
        found = await answer if inspect.isawaitable(answer) else answer
    _refuse_past(found, leadership)


def guarded_sync(connection: Any, leadership: Leadership) -> None:
    """``guarded`` for code without an event loop; the connection is not an async one. Raises as ``guarded``."""
    term, store = _build_term(leadership), _find_store(connection, leadership)
    answer = store.check_term(term, connection)  # type: ignore[attr-defined]  # see _find_store
    if inspect.isawaitable(answer):
        if inspect.iscoroutine(answer):
            answer.close()
        raise InvalidInput("guarded(connection): the connection is an async one; await arriero.guarded")
    _refuse_past(answer, leadership)


def _build_term(leadership: Leadership) -> LeaseTerm:
    milliseconds = max(1, round(1000 * (leadership.duration or 0)))
    return LeaseTerm(leadership.name, leadership.holder, leadership.term, milliseconds)


def _find_store(connection: object, leadership: Leadership) -> StateStore:
    """The store that keeps the lease, with the method ``check_term``. Raises InvalidInput."""
    lease = leadership.lease
    if not isinstance(lease, StoreLease):
        raise InvalidInput(
            f"guarded(connection): the lease {leadership.name!r} is kept by {lease.provider}, not in a database that your"
            " transaction can lock; keep the largest term beside your rows, and refuse a smaller one"
        )
    store = lease.get_store()
    if not hasattr(store, "check_term"):
        raise InvalidInput(f"guarded(connection): the store {store.url} has no transactions of yours to guard")
    if store.url.startswith("sqlite:") and not isinstance(connection, sqlite3.Connection):
        raise InvalidInput(
            f"guarded(connection) takes a sqlite3.Connection for the store {store.url}, not {connection!r}; see"
            " arriero.connect"
        )
    return store


def _refuse_past(found: LeaseTerm | None, leadership: Leadership) -> None:
    if found is None:
        raise LeadershipLost(
            f"lease {leadership.name!r}: term {leadership.term} is past, or an operator broke the lease; roll back, and stop"
            " to act as the leader"
        )
