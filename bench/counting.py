"""A connection to a file that tells what it is asked for, statement by statement."""

import sqlite3
from collections.abc import Callable
from typing import Any


class CountingConnection:
    """As the connection itself. ``note`` is told each statement, and how many rows it has changed."""

    def __init__(self, connection: sqlite3.Connection, note: Callable[[str, int], None]) -> None:
        self._connection = connection
        self._note = note

    def execute(self, statement: str, *parameters: Any) -> sqlite3.Cursor:
        before = self._connection.total_changes
        cursor = self._connection.execute(statement, *parameters)
        self._note(statement, self._connection.total_changes - before)
        return cursor

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)
