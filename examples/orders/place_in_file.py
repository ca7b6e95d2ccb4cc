"""A SQLite file: the tasks and the shop's table side by side in it."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import arriero

from .places import SQLITE, NotReadable, UnusablePlace


class FilePlace:
    """See ``Place``."""

    announcement = None
    conflicts = (arriero.TransactionConflict,)
    tables = {  # noqa: RUF012  # read only
        "task": "arriero_task",
        "step": "arriero_step",
        "process": "arriero_process",
        "breaker": "arriero_breaker",
        "lease": "arriero_lease",
        "shop_order": "shop_order",
        "mark": "?",
    }

    def __init__(self, path: Path) -> None:
        self._path = path.absolute()
        self.url = f"{SQLITE}{self._path}"

    @contextmanager
    def made(self, *, keep: bool) -> Iterator[None]:
        """The store makes its file itself; nothing is removed that somebody named."""
        if self._path.exists():
            raise UnusablePlace(f"{self._path} exists: the demo balances its books from nothing, give it a fresh place")
        yield

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """The connection is read-only and short: it can neither hold up the engine nor move a checkpoint."""
        try:
            with closing(sqlite3.connect(f"{self._path.as_uri()}?mode=ro", uri=True, timeout=5)) as connection:
                connection.execute("BEGIN")  # one snapshot for all that is read
                yield connection
        except sqlite3.OperationalError as error:
            raise NotReadable(f"{self._path}: {error}") from error

    @contextmanager
    def connected(self) -> Iterator[sqlite3.Connection]:
        with closing(arriero.connect(self.url)) as connection:
            yield connection

    @contextmanager
    def transaction(self, connection: sqlite3.Connection) -> Iterator[None]:
        with connection:  # commits, or rolls back
            connection.execute("BEGIN IMMEDIATE")
            yield

    def space_statements(self) -> tuple[str, ...]:
        return ()
