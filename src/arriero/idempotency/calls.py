"""Interface for the writer of a service: a call under a key, barred keys, and removal of old keys."""

import json
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import timedelta
from types import TracebackType
from typing import Any, Self, TypeVar

from ..errors import InvalidInput
from ..payloads.codec import encode_untyped
from .connections import CallerTransaction, is_missing_table, open_transaction, refuse_kind
from .scripts import (
    KnownCall,
    Script,
    bar,
    begin_call,
    check_key,
    drop,
    guard,
    hash_request,
    keep_answer,
    release,
    roll_back,
)

T = TypeVar("T")


def _now() -> int:
    return time.time_ns() // 1_000


class IdempotentCall:
    """One call under a key, as a ``with`` block, or an ``async with`` block if the connection is async."""

    def __init__(self, connection: Any, key: str, request: Any) -> None:
        self._key = check_key(key)
        self._request_hash = hash_request(request)
        self._connection = connection
        self._transaction: CallerTransaction | None = None
        self._known: KnownCall | None = None
        self._answer: str | None = None  # JSON

    @property
    def is_new(self) -> bool:
        """Returns True for the first call under the key: do the work and ``keep`` its answer."""
        if self._known is None:
            raise InvalidInput("idempotent: use it as `with arriero.idempotent(...) as call:`")
        return self._known.answer is None

    @property
    def answer(self) -> Any:
        """The answer under the key: of the first call, or what was kept now. The same JSON value in both cases."""
        if self._answer is None:
            told = "keep the answer first" if self.is_new else ""
            raise InvalidInput(f"idempotent: there is no answer under {self._key!r} yet; {told}")
        return json.loads(self._answer)

    def keep(self, answer: Any) -> None:
        """Keep the answer of a new call. It is written at the end of the block.

        Raises: InvalidInput - the call is not new, an answer was kept already, or it has no JSON form.
        """
        if not self.is_new:
            raise InvalidInput(
                f"idempotent: {self._key!r} has an answer already, so nothing may be done; ask `call.is_new` first"
            )
        if self._answer is not None:
            raise InvalidInput(f"idempotent: the answer under {self._key!r} was kept already")
        self._answer = encode_untyped(answer, "answer of an idempotent call")

    def __enter__(self) -> Self:
        self._open(is_async=False).drive(self._begin())
        return self

    async def __aenter__(self) -> Self:
        await self._open(is_async=True).drive(self._begin())  # type: ignore[misc]  # it is async
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        transaction, script = self._end(error)
        if script is None:
            return
        if error is not None:
            with suppress(Exception):  # a broken connection must not hide what was raised
                transaction.drive(script)
            return
        transaction.drive(script)
        self._refuse_forgotten()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        transaction, script = self._end(error)
        if script is None:
            return
        if error is not None:
            with suppress(Exception):
                await transaction.drive(script)  # type: ignore[misc]
            return
        await transaction.drive(script)  # type: ignore[misc]
        self._refuse_forgotten()

    def _open(self, *, is_async: bool) -> CallerTransaction:
        if self._transaction is not None:
            raise InvalidInput("idempotent: a call is used once; make another one")
        self._transaction = open_transaction(self._connection)
        if self._transaction.is_async != is_async:
            refuse_kind(self._transaction.is_async)
        return self._transaction

    def _begin(self) -> Script[None]:
        """Take the key. The savepoint stays open for the block of a new call."""
        known = yield from guard(lambda: begin_call(self._key, self._request_hash, _now()), is_missing_table)
        if known.answer is not None:
            yield from release()
        self._known = known
        self._answer = known.answer

    def _end(self, error: BaseException | None) -> tuple[CallerTransaction, Script[None] | None]:
        assert self._transaction is not None
        if not self.is_new:
            return self._transaction, None
        if error is not None or self._answer is None:
            return self._transaction, roll_back()
        return self._transaction, keep_answer(self._key, self._answer, _now())

    def _refuse_forgotten(self) -> None:
        if self._answer is None:
            raise InvalidInput(
                f"idempotent: the block of {self._key!r} ended without an answer, and is rolled back; call `call.keep(answer)`"
            )


def idempotent(connection: Any, key: str, *, request: Any) -> IdempotentCall:
    """Do the work of a call once for each key, in the transaction that is open on ``connection``; nothing is committed here.

    Use it as ``with idempotent(...) as call``. If ``call.is_new``, do the work with the same connection and end with
    ``call.keep(answer)``. ``call.answer`` is the answer of the first call. Only one of several concurrent calls under a key does
    the work: the others wait for it on PostgreSQL, and on SQLite as long as the connection waits for the write lock. If the
    block raises, its work is rolled back, and the next call under the key is a new one.

    Args:
        connection: a ``sqlite3.Connection``, one of psycopg, a Session or Connection of SQLAlchemy, or Django's; async ones,
            too. It is on SQLite or PostgreSQL.
        key: the header ``Idempotency-Key`` of the request.
        request: what is asked: the bytes of the body, or any value that has a JSON form. Only its hash is kept.
    Raises: InvalidInput - the connection, key or request cannot be used. From the block: IdempotencyKeyReused - the key
    belongs to another request; IdempotencyKeyBarred - it was barred; TransactionConflict - roll back and run all of it again.
    """
    return IdempotentCall(connection, key, request)


def bar_key(connection: Any, key: str) -> Any:
    """Bar a key in the transaction that is open on ``connection``: no call under it has an effect from the commit on.

    For an undo: it may come before the call that it undoes. A call of the key that is running is waited for.

    Returns: BarredKey - whether a call had happened, and its answer, also if the key was barred before; to be awaited if the
    connection is async.
    Raises: InvalidInput - the connection or the key cannot be used; TransactionConflict - roll back and run it again.
    """
    checked = check_key(key)
    return _run(connection, lambda: bar(checked, _now()))


def drop_keys(connection: Any, *, older_than: timedelta) -> Any:
    """Forget the keys that were answered or barred longer ago than that. A call under a forgotten key is a new one.

    Keep them as long as a call may be repeated: in arriero as long as an operator may resubmit a task.

    Returns: how many; to be awaited if the connection is async.
    Raises: InvalidInput - the connection cannot be used, or ``older_than`` is not a timedelta above 0.
    """
    if not isinstance(older_than, timedelta) or older_than <= timedelta():
        raise InvalidInput(f"drop_keys: older_than is {older_than!r}; give a timedelta above 0")
    before = _now() - older_than // timedelta(microseconds=1)
    return _run(connection, lambda: drop(before))


def _run(connection: Any, make: Callable[[], Script[T]]) -> T | Awaitable[T]:
    def run() -> Script[T]:
        result = yield from guard(make, is_missing_table)
        yield from release()
        return result

    return open_transaction(connection).drive(run())
