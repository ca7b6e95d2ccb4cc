"""Statements that write rows on PostgreSQL, made of the columns that tables have.

A batch of rows travels as one JSON text: the fastest way there is for a handful and for a thousand of them (docs/adr/0016).
One row travels as its fields: to take a row out of a JSON text costs the server more than to write it (docs/adr/0028).
"""

from collections.abc import Callable, Iterable, Mapping
from operator import attrgetter, itemgetter
from typing import Any

import msgspec

from ...model import ConvoyRow, StepRow, TaskRow
from ..columns import (
    CONVOY,
    TRUTH_VALUES,
    list_columns,
)
from ..readable import refuse_unreadable
from ..rows import (
    STEP_KINDS,
    STEP_STATES,
    TASK_STATES,
    TURN,
    TURNS,
    Row,
    convoy_as_is,
    known_or_as_is,
)

_read_convoy = msgspec.json.Decoder(ConvoyRow).decode


def task_as_is(row: Row) -> TaskRow:
    """A task's row, also where this release cannot read it; see ``store.readable``."""
    fields = list(row)
    fields[3], fields[TURN] = known_or_as_is(TASK_STATES, row[3]), TURNS.get(row[TURN], row[TURN])
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


_TEXTS = frozenset(
    (
        "task_id", "workflow", "state", "policy", "body_hash", "output", "failure", "head", "reply_to", "kind", "name", "key",
        "agent", "arguments", "idempotency_key", "compensation", "undo", "result", "asked", "queue", "data", "cause", "reason",
        "what", "edited_by", "before", "after", "key_before", "key_after", "verdict", "outcome", "answer",
        "step", "code", "told", "error", "actor", "events", "hash", "turn", "ordering", "parked_why", "on_head", "on_gap", "value",
        "trace", "app", "target", "charged_at", "checkpoint", "limit_keys", "routing",
        "trace_context", "trace_link", "submitter", "tags", "submitted_tags", "code_version",
    )
)  # fmt: skip


def _type_of(column: str) -> str:
    if column == "gap_within":
        return "double precision"
    return "text" if column in _TEXTS else "boolean" if column in TRUTH_VALUES else "bigint"


class Write(msgspec.Struct, frozen=True):
    """A statement that writes rows of one kind, for one row and for any number of them.

    ``of_one`` has the row's ``fields`` as its parameters, in their order; ``of_many`` has ``rows``: ``as_json`` of them.
    """

    of_one: str
    of_many: str
    fields: Callable[[Any], tuple[Any, ...]]
    as_json: Callable[[Iterable[Any]], str]


def insert_rows(table: str, columns: tuple[str, ...], *, suffix: str = "", from_dicts: bool = False) -> Write:
    """INSERT of rows, in their order. ``from_dicts``: rows are dicts with just these columns, else they have attributes."""
    start = f"INSERT INTO {{schema}}.{table} ({list_columns(columns)}) SELECT {list_columns(columns, 'given')} FROM "
    fields, encoded = (itemgetter(*columns), as_json) if from_dicts else _senders(table, columns)
    return Write(start + _one(columns) + suffix, start + _many(columns) + suffix, fields, encoded)


def update_rows(table: str, key: str, columns: tuple[str, ...]) -> Write:
    """UPDATE of rows by their key."""
    start = (
        f"UPDATE {{schema}}.{table} AS kept SET {', '.join(f'{column} = given.{column}' for column in columns)} FROM "
    )
    end = f" WHERE kept.{key} = given.{key}"
    sent = (key, *columns)
    return Write(start + _one(sent) + end, start + _many(sent) + end, *_senders(table, sent))


def _one(columns: Iterable[str]) -> str:
    fields = ", ".join(f"%({column})s::{_type_of(column)} AS {column}" for column in columns)
    return f"(SELECT {fields}) AS given"


def _many(columns: Iterable[str]) -> str:
    fields = ", ".join(f"{column} {_type_of(column)}" for column in columns)
    return f"json_to_recordset(%(rows)s::json) AS given ({fields})"


def _senders(
    table: str, columns: tuple[str, ...]
) -> tuple[Callable[[Any], tuple[Any, ...]], Callable[[Iterable[object]], str]]:
    """Return a function that takes these columns out of a row, and one that makes JSON of such rows without nulls.

    The server reads all that it is sent: half the text is half of that work.
    """
    short = msgspec.defstruct("Row", [(column, Any, None) for column in columns], omit_defaults=True)
    word = ".stored" if table == "task" else ""
    chosen = attrgetter(*(f"{column}{word}" if column == "state" else column for column in columns))
    encode = msgspec.json.Encoder().encode
    return chosen, lambda rows: encode([short(*chosen(row)) for row in rows]).decode()


def as_json(rows: Iterable[Mapping[str, Any]]) -> str:
    """Rows as the parameter of a statement that takes them as JSON."""
    return msgspec.json.encode(list(rows)).decode()
