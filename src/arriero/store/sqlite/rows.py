"""SQLite rows to model values and back. Column order is that of the model's fields; the queries name it."""

from typing import Any

import msgspec

from ...core.readable import refuse_unreadable
from ...model import AlertRow, LedgerRow, ProcessRow, StatusRow, StepRow, TaskRow
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
    history_of,
    known_or_as_is,
    ledger_of,
    tail_of,
)

__all__ = [
    "alert_of",
    "convoy_as_is",
    "convoy_of",
    "history_of",
    "ledger_of",
    "parameters_of",
    "process_of",
    "status_of",
    "step_as_is",
    "step_of",
    "tail_of",
    "task_as_is",
    "task_of",
]

_TRUTHS = {0: False, 1: True}
_UNDOING = TaskRow.__struct_fields__.index("undoing")
_TRUTH_VALUES = tuple(StepRow.__struct_fields__.index(name) for name in ("pivot", "effect_free", "taken", "in_doubt"))


def task_as_is(row: Row) -> TaskRow:
    """A task's row, also where this release cannot read it; see ``core.readable``."""
    fields = list(row)
    fields[3], fields[TURN] = known_or_as_is(TASK_STATES, row[3]), known_or_as_is(TURNS, row[TURN])
    fields[_UNDOING] = known_or_as_is(_TRUTHS, row[_UNDOING])
    return TaskRow(*fields)


def task_of(row: Row) -> TaskRow:
    """A task's row. Raises UnreadableRow."""
    return refuse_unreadable(task_as_is(row))


def step_as_is(row: Row) -> StepRow:
    """A step's row, also where this release cannot read it; SQLite keeps truth values as 0 and 1."""
    fields = list(row)
    fields[3], fields[7] = known_or_as_is(STEP_KINDS, row[3]), known_or_as_is(STEP_STATES, row[7])
    for at in _TRUTH_VALUES:
        fields[at] = known_or_as_is(_TRUTHS, row[at])
    return StepRow(*fields)


def step_of(row: Row) -> StepRow:
    """A step's row. Raises UnreadableRow."""
    return refuse_unreadable(step_as_is(row))


def status_of(row: Row) -> StatusRow:
    """A status; its columns are its fields."""
    return StatusRow(*row)


def process_of(row: Row) -> ProcessRow:
    """A process start."""
    return ProcessRow(row[0], row[1], row[2], bool(row[3]), row[4])


def parameters_of(row: AlertRow | LedgerRow) -> dict[str, Any]:
    """Named parameters for the queries."""
    return msgspec.structs.asdict(row)
