"""The claim of a task by a Scheduler: what it changes."""

from msgspec.structs import replace

from ..events import Event
from ..events.task import TaskClaimed
from ..model import Instant, StatusRow, TaskRow, TaskState
from .changes import Change
from .states import TaskEvent, advance_task
from .statuses import publish_status


def claim(task: TaskRow, process_no: int, now: Instant) -> Change:
    """Give a free, due task to the process."""
    claimed = replace(
        task,
        state=advance_task(task.state, TaskEvent.CLAIMED),
        locked_by=process_no,
        fence=task.fence + 1,
        revision=task.revision + 1,
        started_at=task.started_at or now,
        unseen_since=now,
    )
    events: list[Event] = [TaskClaimed(claimed.fence, process_no, claimed.state, claimed.revision)]
    statuses: list[StatusRow] = []
    if task.started_at is None and task.state is TaskState.PENDING:
        claimed = publish_status(claimed, "started", now, events, statuses)
    return Change(claimed, [], [], events, [], statuses)
