"""Rows of PostgreSQL to model values. Column order is that of the model's fields."""

from typing import Any

import msgspec

from ...model import AlertRow, HistoryRow, StepKind, StepRow, StepState, TaskRow, TaskState

Row = tuple[Any, ...]
_read_told = msgspec.json.Decoder(tuple[str, ...]).decode
_TASK_STATES = {str(state): state for state in TaskState}
_STEP_STATES = {str(state): state for state in StepState}
_STEP_KINDS = {str(kind): kind for kind in StepKind}
_TOLD = AlertRow.__struct_fields__.index("told")


def task_of(row: Row) -> TaskRow:
    """A task's row."""
    fields = list(row)
    fields[3] = _TASK_STATES[row[3]]
    return TaskRow(*fields)


def step_of(row: Row) -> StepRow:
    """A step's row."""
    fields = list(row)
    fields[3], fields[7] = _STEP_KINDS[row[3]], _STEP_STATES[row[7]]
    return StepRow(*fields)


def alert_of(row: Row) -> AlertRow:
    """An alert; ``told`` is kept as a JSON array."""
    fields = list(row)
    fields[_TOLD] = _read_told(row[_TOLD])
    return AlertRow(*fields)


def history_of(row: Row) -> HistoryRow:
    """A row of the history."""
    return HistoryRow(row[0], row[1], row[2], row[3], row[4], row[5], msgspec.Raw(row[6].encode()), row[7])
