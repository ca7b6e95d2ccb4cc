"""Rows of the tables that this release cannot read: the alerts that tell of them. Functions on one transaction."""

from collections.abc import Sequence

from ...errors import UnreadableRow
from ...model import Instant
from .. import apart
from ..apart import SetApart
from . import reading
from .session import Transaction
from .tables import INSERT_UNREADABLE

TASKS_MAX = 1_000  # with such an alert, looked at again in one pass


def tell(transaction: Transaction, errors: Sequence[UnreadableRow], now: Instant) -> list[tuple[UnreadableRow, str]]:
    """Open an alert for each task, unless one of its kind is open. Answers what was found, with the task's id."""
    return [(error, _tell(transaction, error, now)) for error in errors]


def _tell(transaction: Transaction, error: UnreadableRow, now: Instant) -> str:
    task_no = error.task_no
    if not task_no:  # a convoy in which nothing is open: told of the task that comes next
        asked = {"convoy_no": error.convoy_no, "rank": 0, "place": 0}
        row = transaction.ask("select_next_waiting", asked).fetchone()
        task_no = 0 if row is None else row[0]
    row = transaction.ask("select_named", {"task_no": task_no}).fetchone()
    if row is None:
        return ""
    task_id, workflow, incarnation = row
    alert = apart.alert(error, task_no, task_id, workflow, incarnation, now)
    transaction.write(INSERT_UNREADABLE, [alert])
    return str(task_id)


def look_again(transaction: Transaction, set_apart: SetApart) -> list[int]:
    """Tasks with such an alert all of whose rows can be read by now, or that are gone."""
    rows = transaction.ask("select_unreadable", {"limit": TASKS_MAX}).fetchall()
    task_nos = [task_no for (task_no,) in rows]
    loaded = {one.task.task_no: one for one in reading.load(transaction, task_nos)}
    return [task_no for task_no in task_nos if task_no not in loaded or set_apart.can_read_task(loaded[task_no])]


def close(transaction: Transaction, task_nos: Sequence[int], now: Instant) -> None:
    """Close the alerts of tasks that can be read."""
    transaction.ask("close_unreadable", {"task_nos": list(task_nos), "at": now})
    transaction.arrive()
