"""Rows of PostgreSQL to model values. Column order is that of the model's fields."""

import msgspec

from ...model import ConvoyRow, StepRow, TaskRow
from ..columns import CONVOY
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
    late_answer_of,
    ledger_of,
    tail_of,
)

__all__ = [
    "alert_of",
    "convoy_as_is",
    "convoy_as_told",
    "convoy_in",
    "convoy_of",
    "edit_of",
    "history_of",
    "late_answer_of",
    "ledger_of",
    "step_as_is",
    "step_of",
    "tail_of",
    "task_as_is",
    "task_of",
]

_read_convoy = msgspec.json.Decoder(ConvoyRow).decode


def task_as_is(row: Row) -> TaskRow:
    """A task's row, also where this release cannot read it; see ``store.readable``."""
    fields = list(row)
    fields[3], fields[TURN] = TASK_STATES.get(row[3], row[3]), TURNS.get(row[TURN], row[TURN])
    return TaskRow(*fields)


def task_of(row: Row) -> TaskRow:
    """A task's row. Raises UnreadableRow."""
    return refuse_unreadable(task_as_is(row))


def step_as_is(row: Row) -> StepRow:
    """A step's row, also where this release cannot read it."""
    fields = list(row)
    fields[3], fields[7] = STEP_KINDS.get(row[3], row[3]), STEP_STATES.get(row[7], row[7])
    return StepRow(*fields)


def step_of(row: Row) -> StepRow:
    """A step's row. Raises UnreadableRow."""
    return refuse_unreadable(step_as_is(row))


def convoy_as_told(text: str | None) -> ConvoyRow | None:
    """Read a convoy like ``convoy_in``, but keep a row that this release cannot read."""
    if text is None:
        return None
    fields = msgspec.json.decode(text)
    return convoy_as_is(tuple(fields.get(name) for name in CONVOY))


def convoy_in(text: str | None) -> ConvoyRow | None:
    """The convoy in a JSON row of the server; None: the task is in no convoy. Raises UnreadableRow."""
    if text is None:
        return None
    try:
        return _read_convoy(text)
    except msgspec.ValidationError:
        convoy = convoy_as_told(text)
        assert convoy is not None
        return refuse_unreadable(convoy)
