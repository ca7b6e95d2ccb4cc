"""Which columns the tables have, in the order of the model's fields, and the set-based statements made of them.

A batch of rows travels as one JSON text: the fastest way psycopg has for a handful and for a thousand of them (docs/adr/0016).
"""

from collections.abc import Callable, Iterable
from operator import attrgetter
from typing import Any

import msgspec

from ...model import AlertRow, StatusRow, StepRow, TaskRow

_TEXTS = frozenset(
    (
        "task_id", "workflow", "state", "policy", "body_hash", "output", "failure", "head", "reply_to", "kind", "name", "key",
        "agent", "arguments", "idempotency_key", "compensation", "undo", "result", "asked", "queue", "data", "cause", "reason",
        "step", "code", "told", "error", "actor", "events", "hash",
    )
)  # fmt: skip
_TRUTH_VALUES = frozenset(("undoing", "pivot", "effect_free", "taken", "in_doubt"))

TASK = TaskRow.__struct_fields__
STEP = StepRow.__struct_fields__
STATUS = ("queue", "task_no", "number", "incarnation", "kind", "at", "data")
ALERT = (
    "task_no",
    "incarnation",
    "cause",
    "reason",
    "step",
    "code",
    "opened_at",
    "closed_at",
    "told",
    "attempts",
    "next_at",
    "error",
)
HISTORY = ("task_no", "link", "at", "actor", "events", "hash")
BODY = ("task_no", "arguments")

# What any command may change, and what only a person's verb does.
TASK_CHANGES = (
    "state", "not_before", "locked_by", "fence", "revision", "failure_count", "lost_count", "opened_count", "open_count",
    "result_count", "unseen_since", "started_at", "ended_at", "output", "failure", "link", "head", "paused_at", "undoing",
    "status_count",
)  # fmt: skip
TASK_REWRITES = (*TASK_CHANGES, "incarnation", "seed", "complete_by", "past_count", "branched_at")
STEP_CHANGES = (
    "state", "attempt", "failure_count", "lost_count", "taken", "in_doubt", "fence", "locked_by", "not_before",
    "complete_by", "wait_by", "result", "failure", "result_number", "delivered_at", "finished_at",
)  # fmt: skip
STEP_REWRITES = (
    *STEP_CHANGES, "agent", "arguments", "asked", "policy", "idempotency_key", "pivot", "effect_free", "compensation",
)  # fmt: skip


def listed(columns: Iterable[str], table: str = "") -> str:
    """Column names for a SELECT, qualified with a table's alias if one is given."""
    return ", ".join(f"{table}.{column}" if table else column for column in columns)


def _type_of(column: str) -> str:
    return "text" if column in _TEXTS else "boolean" if column in _TRUTH_VALUES else "bigint"


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
