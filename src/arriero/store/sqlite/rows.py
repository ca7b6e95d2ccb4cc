"""SQLite rows to model values and back. Column order is that of the model's fields; the queries name it."""

from typing import Any

import msgspec

from ...model import (
    AlertRow,
    HistoryRow,
    ProcessRow,
    StatusRow,
    StepKind,
    StepRow,
    StepState,
    TaskRow,
    TaskState,
)

Row = tuple[Any, ...]
_read_told = msgspec.json.Decoder(tuple[str, ...]).decode
_TASK_STATES = {str(state): state for state in TaskState}
_STEP_STATES = {str(state): state for state in StepState}
_STEP_KINDS = {str(kind): kind for kind in StepKind}
_TOLD = AlertRow.__struct_fields__.index("told")
_UNDOING = TaskRow.__struct_fields__.index("undoing")
_TRUTH_VALUES = tuple(StepRow.__struct_fields__.index(name) for name in ("pivot", "effect_free", "taken", "in_doubt"))


def task_of(row: Row) -> TaskRow:
    """A task's row."""
    fields = list(row)
    fields[3], fields[_UNDOING] = _TASK_STATES[row[3]], bool(row[_UNDOING])
    return TaskRow(*fields)


def step_of(row: Row) -> StepRow:
    """A step's row; SQLite keeps truth values as 0 and 1."""
    fields = list(row)
    fields[3], fields[7] = _STEP_KINDS[row[3]], _STEP_STATES[row[7]]
    for at in _TRUTH_VALUES:
        fields[at] = bool(row[at])
    return StepRow(*fields)


def history_of(row: Row) -> HistoryRow:
    """A row of the history."""
    return HistoryRow(row[0], row[1], row[2], row[3], row[4], row[5], msgspec.Raw(row[6].encode()), row[7])


def status_of(row: Row) -> StatusRow:
    """A status; its columns are its fields."""
    return StatusRow(*row)


def alert_of(row: Row) -> AlertRow:
    """An alert; ``told`` is kept as a JSON array."""
    fields = list(row)
    fields[_TOLD] = _read_told(row[_TOLD])
    return AlertRow(*fields)


def process_of(row: Row) -> ProcessRow:
    """A process start."""
    return ProcessRow(row[0], row[1], row[2], bool(row[3]), row[4])


def parameters_of(row: TaskRow | StepRow | StatusRow | AlertRow) -> dict[str, Any]:
    """Named parameters for the queries."""
    return msgspec.structs.asdict(row)
