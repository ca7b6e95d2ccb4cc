"""Statements for many rows at a time, and what makes a row their parameters.

Parameters go by position: finding forty of them by name takes longer than the statement does.
"""

import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from itertools import chain
from operator import attrgetter
from typing import Any

import msgspec

from ...model import AlertRow, LedgerRow, StepRow, TaskRow
from ..columns import TRUTH_VALUES, list_columns
from ..readable import refuse_unreadable
from ..rows import (
    STEP_KINDS,
    STEP_STATES,
    TASK_STATES,
    TURN,
    TURNS,
    Row,
    known_or_as_is,
)

_TRUTHS = {0: False, 1: True}
_Words = tuple[tuple[int, Mapping[Any, Any]], ...]
_OF_TASKS: _Words = (
    (3, TASK_STATES),
    (TURN, TURNS),
    (TaskRow.__struct_fields__.index("undoing"), _TRUTHS),
)
_OF_STEPS: _Words = (
    (3, STEP_KINDS),
    (7, STEP_STATES),
    *((StepRow.__struct_fields__.index(name), _TRUTHS) for name in ("pivot", "effect_free", "taken", "in_doubt")),
)


def _with_words(row: Row, columns: _Words) -> list[Any]:
    """The fields of a row, in each of these columns what its value stands for."""
    fields = list(row)
    try:
        for at, words in columns:
            fields[at] = words[row[at]]
    except (KeyError, TypeError):  # seldom: all rows but damaged ones are read without a call for each column
        for at, words in columns:
            fields[at] = known_or_as_is(words, row[at])
    return fields


def task_as_is(row: Row) -> TaskRow:
    """A task's row, also where this release cannot read it; see ``store.readable``."""
    return TaskRow(*_with_words(row, _OF_TASKS))


def task_of(row: Row) -> TaskRow:
    """A task's row. Raises UnreadableRow."""
    return refuse_unreadable(task_as_is(row))


def step_as_is(row: Row) -> StepRow:
    """A step's row, also where this release cannot read it; SQLite keeps truth values as 0 and 1."""
    return StepRow(*_with_words(row, _OF_STEPS))


def step_of(row: Row) -> StepRow:
    """A step's row. Raises UnreadableRow."""
    return refuse_unreadable(step_as_is(row))


def parameters_of(row: AlertRow | LedgerRow) -> dict[str, Any]:
    """Named parameters for the queries."""
    return msgspec.structs.asdict(row)


_WORDS = frozenset(("state", "kind"))  # enumerations, never null

# Rows of one statement; 64 of any table's need fewer parameters than SQLite takes. Older releases (before 3.33) know no
# UPDATE FROM, and take fewer.
ROWS_AT_ONCE = (64, 16, 4, 1) if sqlite3.sqlite_version_info >= (3, 33) else (1,)
Statement = Callable[[int], str]  # the text of a statement for that many rows


def insert_rows(
    table: str, columns: tuple[str, ...], *, or_update: tuple[str, ...] = (), or_ignore: bool = False
) -> Statement:
    """INSERT of rows; with ``or_update`` these columns of the row that stands there under its key are changed instead.

    ``or_ignore``: the row that stands there under its key stays as it is.
    """
    text = f"INSERT{' OR IGNORE' if or_ignore else ''} INTO arriero_{table} ({list_columns(columns)}) VALUES"
    changes = ", ".join(f"{column} = excluded.{column}" for column in or_update)
    suffix = f" ON CONFLICT ({columns[0]}) DO UPDATE SET {changes}" if or_update else ""

    @cache
    def of_rows(count: int) -> str:
        return f"{text} {_places(len(columns), count)}{suffix}"

    return of_rows


def update_rows(table: str, key: str, columns: tuple[str, ...]) -> Statement:
    """UPDATE of rows; their parameters are ``columns``, then the key.

    In which order the rows of one statement are changed is SQLite's affair: no change may need another one before it.
    """
    alone = f"UPDATE arriero_{table} SET {', '.join(f'{column} = ?' for column in columns)} WHERE {key} = ?"
    changes = ", ".join(f"{column} = given.{column}" for column in columns)

    @cache
    def of_rows(count: int) -> str:
        if count == 1:
            return alone
        return (
            f"WITH given ({list_columns(columns)}, number) AS (VALUES {_places(len(columns) + 1, count)})"
            f" UPDATE arriero_{table} SET {changes} FROM given WHERE arriero_{table}.{key} = given.number"
        )

    return of_rows


def _places(width: int, count: int) -> str:
    row = f"({', '.join('?' * width)})"
    return ", ".join([row] * count)


def in_statements(statement: Statement, rows: Sequence[tuple[Any, ...]]) -> Iterator[tuple[str, tuple[Any, ...]]]:
    """The texts and parameters that bring these rows; what is inserted keeps its order.

    The driver gives the interpreter's lock back for each statement it runs, not for each of its rows: for a row at a
    time it waits for that lock as often as there are rows, while the event loop works.
    """
    at = 0
    for count in ROWS_AT_ONCE:
        while len(rows) - at >= count:
            yield statement(count), tuple(chain.from_iterable(rows[at : at + count]))
            at += count


def sender(columns: Iterable[str], *, word: str = "_value_") -> Callable[[Any], tuple[Any, ...]]:
    """Makes a row the parameters for these columns: truth values as 0 and 1, words as plain text.

    The driver knows only plain types by themselves; for any other it looks for an adapter first, each time.

    Args:
        word: the attribute of a word that has its text in the table.
    """
    plain = {**dict.fromkeys(TRUTH_VALUES, ".real"), **dict.fromkeys(_WORDS, f".{word}")}
    return attrgetter(*(f"{column}{plain.get(column, '')}" for column in columns))
