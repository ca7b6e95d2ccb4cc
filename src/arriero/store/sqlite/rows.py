"""SQLite rows to model values and back. Column order is that of the model's fields; the queries name it."""

from typing import Any

import msgspec

from ...model import AlertRow, LedgerRow, ProcessRow, StatusRow, StepRow, TaskRow
from ..rows import (
    STEP_KINDS,
    STEP_STATES,
    TASK_STATES,
    TURN,
    TURNS,
    Row,
    alert_of,
    convoy_of,
    history_of,
    ledger_of,
    tail_of,
)

__all__ = [
    "alert_of",
    "convoy_of",
    "history_of",
    "ledger_of",
    "parameters_of",
    "process_of",
    "status_of",
    "step_of",
    "tail_of",
    "task_of",
]

_UNDOING = TaskRow.__struct_fields__.index("undoing")
_TRUTH_VALUES = tuple(StepRow.__struct_fields__.index(name) for name in ("pivot", "effect_free", "taken", "in_doubt"))


def task_of(row: Row) -> TaskRow:
    """A task's row."""
    fields = list(row)
    fields[3], fields[TURN], fields[_UNDOING] = TASK_STATES[row[3]], TURNS[row[TURN]], bool(row[_UNDOING])
    return TaskRow(*fields)


def step_of(row: Row) -> StepRow:
    """A step's row; SQLite keeps truth values as 0 and 1."""
    fields = list(row)
    fields[3], fields[7] = STEP_KINDS[row[3]], STEP_STATES[row[7]]
    for at in _TRUTH_VALUES:
        fields[at] = bool(row[at])
    return StepRow(*fields)


def status_of(row: Row) -> StatusRow:
    """A status; its columns are its fields."""
    return StatusRow(*row)


def process_of(row: Row) -> ProcessRow:
    """A process start."""
    return ProcessRow(row[0], row[1], row[2], bool(row[3]), row[4])


def parameters_of(row: AlertRow | LedgerRow) -> dict[str, Any]:
    """Named parameters for the queries."""
    return msgspec.structs.asdict(row)
