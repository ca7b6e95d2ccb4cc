"""Scripts of database statements for a key, and the meaning of their answers. They open no connection.

A script yields a ``NamedStatement`` or a ``Savepoint`` and is sent the outcome, or has the error thrown in. So the same script
serves sync and async connections.

The key's row is inserted first. On PostgreSQL this waits for another transaction that has the key; on SQLite it takes the
write lock. Only the primary key decides who is first. All work for a new key is inside of a savepoint: if the caller's block
fails, its effect and the row no longer exist, even if the caller then commits the rest.
"""

import hashlib
import json
from collections.abc import Callable, Generator
from enum import Enum
from typing import Any, NamedTuple, TypeVar

from ..errors import IdempotencyKeyBarred, IdempotencyKeyReused, InvalidInput, TransactionConflict
from ..payloads.codec import encode
from ..store.columns import load_statements

T = TypeVar("T")
TABLE = "arriero_idempotent_call"
SCHEMA = load_statements("arriero.idempotency")["create_table"] + ";\n"
"""The statement that creates the table, for migrations of your own. Without it the first call creates the table."""

KEY_LENGTH_MAX = 255


class Savepoint(Enum):
    """Operation on the innermost savepoint."""

    OPEN = "open"
    RELEASE = "release"
    ROLL_BACK = "roll back"  # and release it


class NamedStatement(NamedTuple):
    """A statement of ``queries`` by its name."""

    name: str
    parameters: dict[str, Any]


class DatabaseAnswer(NamedTuple):
    """Rows that were read, and the number of rows that were changed."""

    rows: list[tuple[Any, ...]]
    changed: int


Script = Generator[NamedStatement | Savepoint, DatabaseAnswer, T]


class KnownCall(NamedTuple):
    """A key before its block runs. ``answer``: JSON of the first call; None: this is the first one."""

    answer: str | None


class BarredKey(NamedTuple):
    """A key that was barred. ``was_answered``: a call under it had happened; ``answer``: what that was answered."""

    was_answered: bool
    answer: Any


def check_key(key: object) -> str:
    """Raises InvalidInput: it is not a text of 1 to 255 characters that every database can keep."""
    if not isinstance(key, str) or not 1 <= len(key) <= KEY_LENGTH_MAX or "\0" in key or not key.isprintable():
        raise InvalidInput(
            f"idempotency key: {key!r} is none; give the text of the header Idempotency-Key, 1 to {KEY_LENGTH_MAX} characters"
        )
    return key


def hash_request(request: object) -> str:
    """Hash of what was asked under a key: the bytes of a body, or any value that has a JSON form."""
    if isinstance(request, bytes | bytearray | memoryview):
        return hashlib.sha256(b"bytes:" + bytes(request)).hexdigest()
    return hashlib.sha256(b"json:" + encode(request, "request of an idempotent call").encode()).hexdigest()


def guard(make: Callable[[], Script[T]], is_missing_table: Callable[[BaseException], bool]) -> Script[T]:
    """Run a script inside of a savepoint, which stays open when it has returned. Creates the table if it is missing."""
    yield Savepoint.OPEN
    try:
        return (yield from make())
    except BaseException as error:
        yield Savepoint.ROLL_BACK
        if not is_missing_table(error):
            raise
    yield Savepoint.OPEN
    try:
        yield NamedStatement("create_table", {})
        return (yield from make())
    except BaseException:
        yield Savepoint.ROLL_BACK
        raise


def begin_call(key: str, request_hash: str, now: int) -> Script[KnownCall]:
    """Take a key, or read what is known of it.

    Raises: IdempotencyKeyReused - another request has it; IdempotencyKeyBarred; InvalidInput - it is begun already;
    TransactionConflict - it was dropped meanwhile.
    """
    begun = yield NamedStatement("begin_call", {"key": key, "request_hash": request_hash, "now": now})
    if begun.changed:
        return KnownCall(None)
    state, known_hash, answer = yield from _find(key)
    if state == "barred":
        raise IdempotencyKeyBarred(f"idempotency key {key!r} is barred: what it asked for was undone")
    if known_hash != request_hash:
        raise IdempotencyKeyReused(
            f"idempotency key {key!r} was used for another request; each request needs its own key"
        )
    if state == "begun":
        raise _begun(key)
    return KnownCall(answer)


def keep_answer(key: str, answer: str, now: int) -> Script[None]:
    """Keep the answer of a new call, and end its savepoint."""
    try:
        kept = yield NamedStatement("keep_answer", {"key": key, "answer": answer, "now": now})
        if not kept.changed:
            raise _begun(key)
    except BaseException:
        yield Savepoint.ROLL_BACK
        raise
    yield Savepoint.RELEASE


def release() -> Script[None]:
    yield Savepoint.RELEASE


def roll_back() -> Script[None]:
    yield Savepoint.ROLL_BACK


def bar(key: str, now: int) -> Script[BarredKey]:
    """Bar a key, whether a call under it has happened or not."""
    barred = yield NamedStatement("bar_unknown_key", {"key": key, "now": now})
    if barred.changed:
        return BarredKey(False, None)
    state, _, answer = yield from _find(key)
    if state == "begun":
        raise _begun(key)
    if state == "answered":
        yield NamedStatement("bar_answered_key", {"key": key, "now": now})
    return BarredKey(answer is not None, None if answer is None else json.loads(answer))


def drop(before: int) -> Script[int]:
    dropped = yield NamedStatement("drop_keys", {"before": before})
    return dropped.changed


def _find(key: str) -> Script[tuple[str, str | None, str | None]]:
    found = yield NamedStatement("find_call", {"key": key})
    if not found.rows:
        raise TransactionConflict(
            f"idempotency key {key!r} was dropped meanwhile: roll back and run your transaction again"
        )
    state, request_hash, answer = (part.decode() if isinstance(part, bytes) else part for part in found.rows[0])
    return state, request_hash, answer


def _begun(key: str) -> InvalidInput:
    return InvalidInput(
        f"idempotency key {key!r} is begun and has no answer: it is used twice in one transaction, or its block committed the"
        f" transaction itself; find out what was done, and correct the row in {TABLE} by hand"
    )
