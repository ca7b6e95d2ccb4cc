"""Alerts of the memory store, as its lists show them."""

from collections.abc import Iterable, Mapping

from msgspec.structs import replace

from ...core.alert_rows import QUESTION_CAUSE
from ...model import STEP_BITS, AlertRow, TaskRow


def read_alert(alert: AlertRow, tasks: Mapping[int, TaskRow]) -> AlertRow:
    """Read an alert with the tags that its task has now, and the task whose child that is."""
    task = tasks.get(alert.task_no)
    parent = None if task is None or task.parent_step is None else tasks.get(task.parent_step >> STEP_BITS)
    return replace(alert, tags=None if task is None else task.tags, parent=None if parent is None else parent.task_id)


def filter_alerts(
    alerts: Iterable[AlertRow],
    *,
    open_only: bool = True,
    questions: bool = True,
    after: int = 0,
    before: int | None = None,
    limit: int = 100,
) -> list[AlertRow]:
    """The first alerts of a list, as the store's ``alerts`` says."""
    found = [one for one in alerts if after < one.no < (before or one.no + 1)]
    found = [
        one for one in found if (one.closed_at is None or not open_only) and (questions or one.cause != QUESTION_CAUSE)
    ]
    return sorted(found, key=lambda one: one.no, reverse=before is not None)[:limit]
