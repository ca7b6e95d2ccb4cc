"""Statements for many rows at once, and what makes a row their parameters.

Parameters go by position: finding forty of them by name takes longer than the statement does.
"""

from collections.abc import Callable, Iterable
from operator import attrgetter
from typing import Any

from ..columns import TRUTH_VALUES, listed

_WORDS = frozenset(("state", "kind"))  # enumerations, never null


def insert_rows(table: str, columns: tuple[str, ...], *, or_update: tuple[str, ...] = ()) -> str:
    """INSERT of a row; with ``or_update`` these columns of the row that stands there under its key are changed instead."""
    places = ", ".join("?" for _ in columns)
    text = f"INSERT INTO arriero_{table} ({listed(columns)}) VALUES ({places})"
    if or_update:
        changes = ", ".join(f"{column} = excluded.{column}" for column in or_update)
        text += f" ON CONFLICT ({columns[0]}) DO UPDATE SET {changes}"
    return text


def update_rows(table: str, key: str, columns: tuple[str, ...]) -> str:
    """UPDATE of a row; its parameters are ``columns``, then its key."""
    changes = ", ".join(f"{column} = ?" for column in columns)
    return f"UPDATE arriero_{table} SET {changes} WHERE {key} = ?"


def sender(columns: Iterable[str]) -> Callable[[Any], tuple[Any, ...]]:
    """Makes a row the parameters for these columns: truth values as 0 and 1, words as plain text.

    The driver knows only plain types by themselves; for any other it looks for an adapter first, each time.
    """
    return attrgetter(*(f"{column}{_as_plain(column)}" for column in columns))


def _as_plain(column: str) -> str:
    return ".real" if column in TRUTH_VALUES else "._value_" if column in _WORDS else ""
