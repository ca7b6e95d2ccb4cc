"""SQLite rows to model values and back. Column order is that of the model's fields; the queries name it."""

from collections.abc import Mapping
from typing import Any

import msgspec

from ...model import AlertRow, LedgerRow, StepRow, TaskRow
from ..readable import refuse_unreadable
from ..rows import (
    STEP_KINDS,
    STEP_STATES,
    TASK_STATES,
    TURN,
    TURNS,
    Row,
    alert_of,
    convoy_as_is,
    convoy_of,
    edit_of,
    history_of,
    known_or_as_is,
    late_answer_of,
    ledger_of,
    status_of,
    tail_of,
)

__all__ = [
    "alert_of",
    "convoy_as_is",
    "convoy_of",
    "edit_of",
    "history_of",
    "late_answer_of",
    "ledger_of",
    "parameters_of",
    "status_of",
    "step_as_is",
    "step_of",
    "tail_of",
    "task_as_is",
    "task_of",
]

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
