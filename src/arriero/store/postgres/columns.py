"""Set-based statements for PostgreSQL, made of the columns that tables have.

A batch of rows travels as one JSON text: the fastest way psycopg has for a handful and for a thousand of them (docs/adr/0016).
"""

from collections.abc import Callable, Iterable
from operator import attrgetter
from typing import Any

import msgspec

from ...model import AlertRow, StatusRow, StepRow, TaskRow
from ..columns import (
    ALERT,
    BODY,
    CONVOY,
    CONVOY_CHANGES,
    HISTORY,
    STATUS,
    STEP,
    STEP_CHANGES,
    STEP_REWRITES,
    TAIL,
    TAIL_CHANGES,
    TASK,
    TASK_CHANGES,
    TASK_REWRITES,
    TRUTH_VALUES,
    listed,
)

__all__ = [
    "ALERT",
    "BODY",
    "CONVOY",
    "CONVOY_CHANGES",
    "HISTORY",
    "STATUS",
    "STEP",
    "STEP_CHANGES",
    "STEP_REWRITES",
    "TAIL",
    "TAIL_CHANGES",
    "TASK",
    "TASK_CHANGES",
    "TASK_REWRITES",
    "as_json",
    "insert_rows",
    "listed",
    "sender",
    "update_rows",
]

_TEXTS = frozenset(
    (
        "task_id", "workflow", "state", "policy", "body_hash", "output", "failure", "head", "reply_to", "kind", "name", "key",
        "agent", "arguments", "idempotency_key", "compensation", "undo", "result", "asked", "queue", "data", "cause", "reason",
        "step", "code", "told", "error", "actor", "events", "hash", "turn", "ordering", "parked_why", "on_head", "on_gap", "value",
    )
)  # fmt: skip


def _type_of(column: str) -> str:
    if column == "gap_within":
        return "double precision"
    return "text" if column in _TEXTS else "boolean" if column in TRUTH_VALUES else "bigint"


def _given(columns: Iterable[str]) -> str:
    fields = ", ".join(f"{column} {_type_of(column)}" for column in columns)
    return f"json_to_recordset(%(rows)s::json) AS given ({fields})"


def insert_rows(table: str, columns: tuple[str, ...], *, suffix: str = "") -> str:
    """INSERT of any number of rows, in their order. Params: rows (JSON array of objects)."""
    return (
        f"INSERT INTO {{schema}}.{table} ({listed(columns)})"
        f" SELECT {listed(columns, 'given')} FROM {_given(columns)}{suffix}"
    )


def update_rows(table: str, key: str, columns: tuple[str, ...]) -> str:
    """UPDATE of any number of rows by their key. Params: rows (JSON array of objects)."""
    changes = ", ".join(f"{column} = given.{column}" for column in columns)
    return (
        f"UPDATE {{schema}}.{table} AS kept SET {changes} FROM {_given((key, *columns))} WHERE kept.{key} = given.{key}"
    )


def sender(columns: tuple[str, ...]) -> Callable[[Iterable[object]], str]:
    """Makes the parameter of a statement out of rows that have more fields than it names; what is null is left out.

    The server reads all that it is sent: half the text is half of that work.
    """
    short = msgspec.defstruct("Row", [(column, Any, None) for column in columns], omit_defaults=True)
    chosen = attrgetter(*columns)
    encode = msgspec.json.Encoder().encode
    return lambda rows: encode([short(*chosen(row)) for row in rows]).decode()


def as_json(rows: Iterable[TaskRow | StepRow | StatusRow | AlertRow | dict[str, Any]]) -> str:
    """Rows as the parameter of ``insert_rows`` and ``update_rows``; fields that a statement does not name are passed over."""
    return msgspec.json.encode(list(rows)).decode()
