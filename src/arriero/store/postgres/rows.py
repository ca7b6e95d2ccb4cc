"""Rows of PostgreSQL to model values. Column order is that of the model's fields."""

import msgspec

from ...model import ConvoyRow, StepRow, TaskRow
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

__all__ = ["alert_of", "convoy_in", "convoy_of", "history_of", "ledger_of", "step_of", "tail_of", "task_of"]

_read_convoy = msgspec.json.Decoder(ConvoyRow).decode


def task_of(row: Row) -> TaskRow:
    """A task's row."""
    fields = list(row)
    fields[3], fields[TURN] = TASK_STATES[row[3]], TURNS[row[TURN]]
    return TaskRow(*fields)


def step_of(row: Row) -> StepRow:
    """A step's row."""
    fields = list(row)
    fields[3], fields[7] = STEP_KINDS[row[3]], STEP_STATES[row[7]]
    return StepRow(*fields)


def convoy_in(text: str | None) -> ConvoyRow | None:
    """What a key is doing, as the server tells a row in JSON; None: of a task in no convoy."""
    return None if text is None else _read_convoy(text)
