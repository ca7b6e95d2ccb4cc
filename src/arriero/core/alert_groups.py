"""Alerts of one cause, reported together: many tasks that one bad deploy or one failing step holds are one piece of news.

Each task keeps an open alert of its own (I26). Only what sinks, lists and ``arriero doctor`` say of them is put together.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence

import msgspec

from ..events.base import payload_hash
from ..model import AlertRow, Instant
from ..model.instants import as_datetime
from ..text.escaping import shell_word
from .alert_rows import BREAKER_CAUSE, QUESTION_CAUSE, SCHEDULE_CAUSE
from .alerts import Alert, build_alert, format_list_command

ALONE = frozenset((BREAKER_CAUSE, SCHEDULE_CAUSE, "unreadable", "gap"))  # causes whose remedy is each one's own
OF_A_STEP = frozenset(("step", "undo", "in_doubt"))  # causes whose step still stands where it failed, as filters see it
TASK_IDS_MAX = 10  # that one message names

WINDOW_SECONDS = 5.0
WINDOW_SECONDS_MAX = 40.0  # below the minute after which ``arriero doctor`` calls an alert overdue

GroupKey = tuple[str, str, str, str, bool]


class AlertGroup(msgspec.Struct, frozen=True):
    """Open alerts of one cause. ``reason``: of the first.

    ``select``: options of the command line that select their tasks; empty if the remedy is its own.
    """

    workflow: str
    cause: str
    step: str
    code: str
    count: int
    first_at: Instant
    last_at: Instant
    first_task: str
    reason: str
    select: str


def find_group(row: AlertRow) -> GroupKey | None:
    """Return what alerts of one cause have in common; None: this one is reported alone."""
    if row.cause in ALONE or not row.task_id:
        return None
    return (row.workflow, row.cause, row.step, row.code, row.closed_at is None)


def group_rows(rows: Iterable[AlertRow]) -> list[list[AlertRow]]:
    """Put alerts of one cause together that the same sinks know, in the order of their first ones."""
    return _put_together(rows, lambda row: row.told)


def summarize_groups(rows: Iterable[AlertRow]) -> list[AlertGroup]:
    """Summarize open alerts of tasks by cause, the largest group first; those whose remedy is their own are left out."""
    return summarize_alerts(row for row in rows if find_group(row) is not None)


def summarize_alerts(rows: Iterable[AlertRow]) -> list[AlertGroup]:
    """Summarize all open alerts by cause, the largest group first. One whose remedy is its own is a group alone."""
    found = [_summarize(members) for members in _put_together(rows, lambda row: None)]
    return sorted(found, key=lambda group: (-group.count, group.first_at))


def _put_together(rows: Iterable[AlertRow], read_more: Callable[[AlertRow], object]) -> list[list[AlertRow]]:
    """Put alerts of one cause together. ``read_more``: what else they must have in common."""
    groups: defaultdict[object, list[AlertRow]] = defaultdict(list)
    for row in rows:
        key = find_group(row)
        groups[row.no if key is None else (key, read_more(row))].append(row)
    return list(groups.values())


def format_next_command(group: AlertGroup) -> str:
    """Format what an operator types next about alerts of one cause."""
    if group.select:
        return f"arriero task resubmit {group.select}"
    if group.cause == BREAKER_CAUSE:
        return f"arriero agent show {shell_word(group.step.partition('[')[0])}"
    if group.cause == SCHEDULE_CAUSE:
        return f"arriero schedule show {shell_word(group.step)}"
    if group.cause == QUESTION_CAUSE:
        return format_list_command(group.code)
    return f"arriero task explain {shell_word(group.first_task)}" if group.first_task else "arriero doctor"


def format_command_of_alert(row: AlertRow) -> str:
    """Format what an operator types next about one alert."""
    group = _summarize([row])
    is_of_task = bool(row.task_id) and row.cause != QUESTION_CAUSE
    return f"arriero task explain {shell_word(row.task_id)}" if is_of_task else format_next_command(group)


def _summarize(rows: Sequence[AlertRow]) -> AlertGroup:
    first = min(rows, key=lambda row: row.opened_at)
    return AlertGroup(
        first.workflow,
        first.cause,
        first.step,
        first.code,
        len(rows),
        first.opened_at,
        max(row.opened_at for row in rows),
        first.task_id,
        first.reason,
        "" if find_group(first) is None else format_selection(first),
    )


def format_selection(row: AlertRow) -> str:
    """Format the options of the command line that select the tasks of an alert's cause; empty for questions, each answered alone."""
    return " ".join(f"--{name} {shell_word(value)}" for name, value in list_criteria(row).items())


def list_criteria(of: AlertRow | AlertGroup) -> dict[str, str]:
    """List the criteria that select the tasks of an alert's cause, by their names; none for questions, each answered alone."""
    if of.cause == QUESTION_CAUSE:
        return {}
    criteria = {"state": "held", "workflow": of.workflow}
    if of.step and of.cause in OF_A_STEP:
        criteria["step"] = of.step
    if of.code:
        criteria["code"] = of.code
    return criteria


def build_group_alert(rows: Sequence[AlertRow], store_id: str) -> Alert:
    """Build the one alert that reports all alerts of one cause.

    Its id follows from its members: if more have come before it is reported again, it is another message.
    """
    first = min(rows, key=lambda row: row.opened_at)
    alert = build_alert(first, store_id)
    if len(rows) == 1:
        return alert
    members = payload_hash(",".join(sorted(f"{row.no}-{row.opened_at}" for row in rows)))
    closed = [row.closed_at for row in rows if row.closed_at is not None]
    return msgspec.structs.replace(
        alert,
        id=f"{store_id}-group-{members}-{alert.state}",
        count=len(rows),
        closed_at=as_datetime(max(closed)) if closed else None,
        last_opened_at=as_datetime(max(row.opened_at for row in rows)),
        task_ids=tuple(row.task_id for row in rows[:TASK_IDS_MAX]),
        select=format_selection(first),
    )


def compute_window(last: tuple[float, float] | None, now: float) -> float:
    """Return the seconds in which further alerts of a cause are collected, once a message about it is sent.

    Args:
        last: when the last message about it was sent, and its window; None: there was none.
        now: on the same clock.
    Returns: it doubles while alerts keep coming, and begins again after a quiet time.
    """
    if last is None:
        return WINDOW_SECONDS
    told_at, window = last
    return WINDOW_SECONDS if now >= told_at + 2 * window else min(2 * window, WINDOW_SECONDS_MAX)
