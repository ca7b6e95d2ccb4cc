"""Rules of when something of a task may begin that an operator has paused or snoozed."""

from ..model import Instant, TaskRow


def find_start(task: TaskRow, at: Instant) -> Instant:
    """Find when something of the task begins that would begin ``at``: no earlier than the end of a snooze."""
    return at if task.snoozed_until is None else max(at, task.snoozed_until)


def find_request_start(task: TaskRow, at: Instant) -> Instant | None:
    """Find the instant from which a request of the task may be taken that is due ``at``; None while the task is paused."""
    return find_start(task, at) if task.paused_at is None else None


def find_snooze_end(task: TaskRow) -> Instant | None:
    """Find the end of the task's last snooze, which may be over. None: it has none, or the task has ended."""
    return task.snoozed_until if task.ended_at is None else None


def is_snoozed(task: TaskRow, now: Instant) -> bool:
    """Returns True if the task is open, and its snooze has not ended."""
    end = find_snooze_end(task)
    return end is not None and end > now
