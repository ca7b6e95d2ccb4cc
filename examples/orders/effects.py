"""The services' durable book: every effect they performed and every answer they gave, in a SQLite file of its own.

The book is the remote truth that the shop's tasks are balanced against, so it keeps two promises of its own:

- A forward call happens once under its key. The same key again is given the recorded answer; the same key with another
  content is refused, because one of the two callers must be mistaken.
- An undo names the key of the call that it undoes. It undoes what it finds under that key, once, and *bars* the key: a
  call that is still on its way, sent by somebody who has been given up since, finds its key barred and has no effect.

Effect, answer and bar are one transaction, and nobody is answered before it is on the disk.
"""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

SCHEMA = """
CREATE TABLE IF NOT EXISTS effects (
    no              INTEGER PRIMARY KEY,
    service         TEXT NOT NULL,
    operation       TEXT NOT NULL,
    order_id        TEXT NOT NULL,
    idempotency_key TEXT NOT NULL,
    amount          INTEGER NOT NULL,  -- pence, pieces or parcels, as the service counts; never negative
    undone_key      TEXT,              -- of an undo: the key of the call that it undid
    at              REAL NOT NULL      -- seconds since 1970, for people only
);
CREATE INDEX IF NOT EXISTS effects_by_key ON effects (idempotency_key);
CREATE INDEX IF NOT EXISTS effects_by_undone_key ON effects (undone_key) WHERE undone_key IS NOT NULL;
CREATE TABLE IF NOT EXISTS answers (
    service         TEXT NOT NULL,
    idempotency_key TEXT NOT NULL,
    content         TEXT NOT NULL,     -- what was asked for under the key
    status          INTEGER NOT NULL,
    body            TEXT NOT NULL,
    PRIMARY KEY (service, idempotency_key)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS barred (
    service         TEXT NOT NULL,
    idempotency_key TEXT NOT NULL,
    PRIMARY KEY (service, idempotency_key)
) WITHOUT ROWID;
"""


@dataclass(frozen=True, slots=True)
class Effect:
    """One row of the book."""

    no: int
    service: str
    operation: str
    order_id: str
    idempotency_key: str
    amount: int
    undone_key: str | None


@dataclass(frozen=True, slots=True)
class Asked:
    """One call that is to have its effect. An undo has the ``forward_key`` it undoes, and no amount of its own."""

    service: str
    operation: str
    order_id: str
    idempotency_key: str
    amount: int = 0
    forward_key: str | None = None

    @property
    def content(self) -> str:
        return json.dumps([self.operation, self.order_id, self.amount, self.forward_key])


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    body: dict[str, object]


class EffectBook:
    """The open book; for one thread at a time, which need not always be the same.

    Args:
        deduplicates: False makes the services forgetful on purpose (``--break dedup``): each call under a known key
            performs its effect again.
    """

    def __init__(self, path: Path, *, deduplicates: bool = True) -> None:
        self._deduplicates = deduplicates
        self._connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        self._connection.execute("PRAGMA journal_mode = WAL")
        self._connection.execute("PRAGMA synchronous = FULL")
        self._connection.executescript(SCHEMA)

    def close(self) -> None:
        self._connection.close()

    def perform(self, batch: Sequence[Asked]) -> list[Answer]:
        """Perform a batch in one transaction, so that many calls share one wait for the disk; answers in its order."""
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            answers = [self._undo(asked) if asked.forward_key is not None else self._forward(asked) for asked in batch]
            self._connection.execute("COMMIT")
        except BaseException:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
            raise
        return answers

    def _forward(self, asked: Asked) -> Answer:
        barred = self._connection.execute(
            "SELECT 1 FROM barred WHERE service = ? AND idempotency_key = ?", (asked.service, asked.idempotency_key)
        ).fetchone()
        if barred:
            return Answer(409, {"code": "barred", "message": "this key was undone, nothing may land under it any more"})
        known = self._known(asked)
        if known is not None:
            return known
        number = self._record(asked, asked.operation, asked.amount, undone_key=None)
        return self._answered(asked, {"number": f"{asked.operation}-{number}"})

    def _undo(self, asked: Asked) -> Answer:
        known = self._known(asked)
        if known is not None:
            return known
        self._connection.execute(
            "INSERT OR IGNORE INTO barred (service, idempotency_key) VALUES (?, ?)", (asked.service, asked.forward_key)
        )
        found = self._connection.execute(
            "SELECT amount FROM effects"
            " WHERE idempotency_key = ? AND service = ? AND order_id = ? AND undone_key IS NULL",
            (asked.forward_key, asked.service, asked.order_id),
        ).fetchall()
        if self._deduplicates and self._is_undone(asked):
            found = []
        for (amount,) in found:
            self._record(asked, asked.operation, amount, undone_key=asked.forward_key)
        return self._answered(asked, {"undone": len(found)})

    def _is_undone(self, asked: Asked) -> bool:
        query = "SELECT 1 FROM effects WHERE undone_key = ? AND service = ?"
        return self._connection.execute(query, (asked.forward_key, asked.service)).fetchone() is not None

    def _known(self, asked: Asked) -> Answer | None:
        if not self._deduplicates:
            return None
        row = self._connection.execute(
            "SELECT content, status, body FROM answers WHERE service = ? AND idempotency_key = ?",
            (asked.service, asked.idempotency_key),
        ).fetchone()
        if row is None:
            return None
        content, status, body = row
        if content != asked.content:
            return Answer(422, {"code": "key_reused", "message": "this key was used for another content"})
        return Answer(status, json.loads(body))

    def _answered(self, asked: Asked, body: dict[str, object]) -> Answer:
        # OR REPLACE: the forgetful services answer one key more than once.
        self._connection.execute(
            "INSERT OR REPLACE INTO answers (service, idempotency_key, content, status, body) VALUES (?, ?, ?, ?, ?)",
            (asked.service, asked.idempotency_key, asked.content, 200, json.dumps(body)),
        )
        return Answer(200, body)

    def _record(self, asked: Asked, operation: str, amount: int, *, undone_key: str | None) -> int:
        cursor = self._connection.execute(
            "INSERT INTO effects (service, operation, order_id, idempotency_key, amount, undone_key, at)"
            " VALUES (?, ?, ?, ?, ?, ?, ?)",
            (asked.service, operation, asked.order_id, asked.idempotency_key, amount, undone_key, time.time()),
        )
        assert cursor.lastrowid is not None
        return cursor.lastrowid


def read_effects(path: Path) -> Iterator[Effect]:
    """The effects of a book in the order they happened, whether or not the services still run."""
    with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as connection:
        query = "SELECT no, service, operation, order_id, idempotency_key, amount, undone_key FROM effects ORDER BY no"
        for row in connection.execute(query):
            yield Effect(*row)
