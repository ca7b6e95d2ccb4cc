"""Rows of the file that this release cannot read: what can be read of them, and the alerts that tell of them."""

import sqlite3
from collections.abc import Sequence
from typing import Any

from ...errors import UnreadableRow
from ...model import Instant, Loaded
from .. import apart
from ..apart import SetApart
from .rows import convoy_as_is, parameters_of, step_as_is, task_as_is
from .tables import Executes, query, step_range

TASKS_MAX = 1_000  # with such an alert, looked at again in one pass: the oldest first


def as_it_stands(connection: Executes, asked: dict[str, int]) -> Loaded | None:
    """All that is recorded of a task, also what cannot be read; None: there is no such task."""
    row = connection.execute(query("select_task"), asked).fetchone()
    if row is None:
        return None
    task = task_as_is(row)
    body = connection.execute(query("select_body"), asked).fetchone()
    steps = connection.execute(query("select_steps"), step_range(task.task_no)).fetchall()
    found = connection.execute(query("select_convoy"), {"convoy_no": task.convoy_no}).fetchone()
    convoy = None if found is None else convoy_as_is(found)
    arguments: Any = None if body is None else body[0]
    return Loaded(task, arguments, tuple(map(step_as_is, steps)), convoy)


def tell(connection: Executes, errors: Sequence[UnreadableRow], now: Instant) -> list[tuple[UnreadableRow, str]]:
    """Open an alert for each task, unless one of its kind is open. Answers what was found, with the task's id."""
    return [(error, _tell(connection, error, now)) for error in errors]


def _tell(connection: Executes, error: UnreadableRow, now: Instant) -> str:
    task_no = error.task_no
    if not task_no:  # a convoy in which nothing is open: told of the task that comes next
        row = connection.execute(query("select_first_waiting"), {"convoy_no": error.convoy_no}).fetchone()
        task_no = 0 if row is None else row[0]
    row = connection.execute(query("select_named"), {"task_no": task_no}).fetchone()
    if row is None:
        return ""
    task_id, workflow, incarnation = row
    alert = apart.alert(error, task_no, str(task_id), str(workflow), incarnation, now)
    connection.execute(query("insert_alert"), parameters_of(alert))
    return str(task_id)


def look_again(connection: sqlite3.Connection, set_apart: SetApart) -> list[int]:
    """Tasks with such an alert all of whose rows can be read by now, or that are gone."""
    rows = connection.execute(query("select_unreadable"), {"limit": TASKS_MAX}).fetchall()
    found = [(task_no, as_it_stands(connection, {"task_no": task_no})) for (task_no,) in rows]
    return [no for no, loaded in found if loaded is None or set_apart.can_read_task(loaded)]


def close(connection: Executes, task_nos: Sequence[int], now: Instant) -> None:
    """Close the alerts of tasks that can be read."""
    for task_no in task_nos:
        connection.execute(query("close_unreadable"), {"task_no": task_no, "at": now})
