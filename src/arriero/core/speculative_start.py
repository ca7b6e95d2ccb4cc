"""Starts a task and opens its first steps in one commit. Its code has run before, speculatively."""

from collections.abc import Iterable
from typing import cast

from msgspec.structs import replace

from ..events import Event
from ..events.task import TaskClaimed
from ..model import Instant, StatusRow, StepKind, TaskRow, TaskState
from ..model.commands import Start
from ..model.moves import NewStep
from .changes import BreakerRows, Change, Rows, publish_status
from .states import TaskEvent, advance_task
from .undo import build_idempotency_key
from .writer import Writer


def claim(task: TaskRow, process_no: int, now: Instant, code_version: str | None = None) -> Change:
    """Give a free, due task to the process. ``code_version``: of the code with which it begins, if its code has not begun."""
    begins = task.started_at is None and task.state is TaskState.PENDING
    code_version = code_version if begins else None
    claimed = replace(
        task,
        state=advance_task(task.state, TaskEvent.CLAIMED),
        locked_by=process_no,
        fence=task.fence + 1,
        revision=task.revision + 1,
        started_at=task.started_at or now,
        unseen_since=now,
        code_version=code_version if begins else task.code_version,
    )
    claim_event = TaskClaimed(claimed.fence, process_no, claimed.state, claimed.revision, code_version or "")
    events: list[Event] = [claim_event]
    statuses: list[StatusRow] = []
    if begins and task.run == 1:
        claimed = publish_status(claimed, "started", now, events, statuses)
    return Change(claimed, [], [], events, [], statuses)


def open_first_steps(change: Change, opened: Iterable[NewStep], rows: Rows, now: Instant, process_no: int) -> None:
    """Open the steps that the code of a task has asked for. The task was just claimed; its first advance would do the same.

    No canary goes with it: the task that ends in the same commit may change the breaker, too.
    """
    writer = Writer(change.task, rows, now, process_no, may_probe=False)
    for new in opened:
        writer.open(new)
    writer.set(revision=writer.task.revision + 1)
    change.task, change.opened, change.dispatches = writer.task, writer.opened, writer.dispatches
    change.events += writer.events


def may_start(task: TaskRow, now: Instant) -> bool:
    """Returns True if a new task may begin in its submission commit: it is in no convoy, and due."""
    return task.convoy_no is None and task.not_before is not None and task.not_before <= now


def start_task(change: Change, start: Start, breakers: BreakerRows, now: Instant, store_id: str) -> Change:
    """Return a new task's rows with its start by its submitter's process.

    ``model.agents``: all that is read of the store, because the task is not there yet. No canary goes with a submission.

    It stays unseen until the process writes again: should the answer be lost, the process finds it among its news.
    """
    claimed = claim(change.task, start.process_no, now, start.code_version)
    begun = Change(claimed.task, [], [], change.events + claimed.events, [], change.statuses + claimed.statuses)
    opened = [_add_keys(new, claimed.task, store_id) for new in start.opened]
    open_first_steps(begun, opened, cast(Rows, breakers), now, start.process_no)
    return begun


def _add_keys(new: NewStep, task: TaskRow, store_id: str) -> NewStep:
    if new.kind is StepKind.TIMER:
        return new
    key = build_idempotency_key(store_id, task.task_no, task.incarnation, new.kind, new.name, new.key)
    return replace(new, idempotency_key=key)
