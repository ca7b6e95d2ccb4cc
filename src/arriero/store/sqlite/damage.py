"""Rows of the file with a value of the wrong type, or a word that this release does not know.

SQLite keeps any value in any column. A row whose time to start is a text is found by no statement, so nobody misses it:
whoever looks a file over asks for such rows here.
"""

import sqlite3
from enum import StrEnum
from itertools import islice
from typing import get_args

from ...model import INSTANT_END, AlertRow, StepRow, TaskRow
from ..readable import KEYS, TABLES, Column, columns_of
from ..shared_rows import SharedRow

FAULTS_MAX = 20
_STORED_AS = {int: ("integer",), bool: ("integer",), float: ("real", "integer"), type(None): ("null",)}
_OF_OTHER_TABLES: dict[type, tuple[str, ...]] = {
    AlertRow: ("task_id", "workflow")
}  # fields that a statement takes from the task
_PLACED = "turn IS NOT NULL AND (convoy_no IS NULL OR place IS NULL OR rank IS NULL)"


def find_damaged_columns(connection: sqlite3.Connection) -> tuple[str, ...]:
    """Names of damaged columns with their rows, as ``column not_before of table task (row 5)``; at most ``FAULTS_MAX``.

    Texts of JSON are not read: whoever needs one finds that out. Raises: sqlite3.Error.
    """
    found = (
        f"column {column} of table {TABLES[row]} (row {', '.join(map(str, key))})"
        for row in (TaskRow, StepRow, AlertRow, *get_args(SharedRow))
        for *key, column in connection.execute(_question(row))
    )
    return tuple(islice(found, FAULTS_MAX))


def _question(row: type) -> str:
    left_out = _OF_OTHER_TABLES.get(row, ())
    faults = [(column.name, _fault(column)) for column in columns_of(row) if column.name not in left_out]
    if row is TaskRow:
        faults.append(("rank", _PLACED))
    cases = " ".join(f"WHEN {fault} THEN '{name}'" for name, fault in faults)
    anywhere = " OR ".join(f"({fault})" for _, fault in faults)
    return f"SELECT {', '.join(KEYS[row])}, CASE {cases} END FROM arriero_{TABLES[row]} WHERE {anywhere} LIMIT {FAULTS_MAX}"


def _fault(column: Column) -> str:
    """The condition under which a column holds what it may not."""
    stored = {name for each in column.types for name in _STORED_AS.get(each, ("text",))}
    fault = f"typeof({column.name}) NOT IN ({_quote_name(stored)})"
    words = [str(word) for each in column.types if issubclass(each, StrEnum) for word in each]
    if words:
        fault += f" OR {column.name} NOT IN ({_quote_name(words)})"
    if column.types == {bool}:
        fault += f" OR {column.name} NOT IN (0, 1)"
    if column.is_instant:
        fault += f" OR {column.name} < 0 OR {column.name} >= {INSTANT_END}"
    return fault


def _quote_name(words: set[str] | list[str]) -> str:
    return ", ".join(f"'{word}'" for word in sorted(words))
