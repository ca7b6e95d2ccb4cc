"""Statuses: messages to whoever submitted a task and named a reply queue."""

from typing import Any

import msgspec
from msgspec.structs import replace

from ..events import Event
from ..events.task import StatusPublished
from ..failures import TaskFailure, choose_public_text
from ..model import Instant, StatusKind, StatusRow, TaskRow, TaskState

STATUS_OF_END: dict[TaskState, StatusKind] = {
    TaskState.PROCESSED: "completed",
    TaskState.COMPENSATED: "compensated",
    TaskState.ERROR: "needs_attention",
}


def publish_status(
    task: TaskRow,
    kind: StatusKind,
    now: Instant,
    events: list[Event],
    statuses: list[StatusRow],
    *,
    failure: TaskFailure | None = None,
    output: str | None = None,
) -> TaskRow:
    """Add a status to ``events`` and ``statuses``.

    Returns: the task with its new count of statuses; unchanged if it has no reply queue.
    """
    queue = task.reply_to
    if queue is None:
        return task
    number = task.status_count + 1
    data: dict[str, Any] = {}
    if failure is not None:
        data = {"reason": failure.reason, "cause": failure.kind, "step": failure.step, "code": failure.code}
        data["public"] = choose_public_text(failure, task.state)
    elif output is not None:
        data = {"output": msgspec.Raw(output.encode())}
    text = msgspec.json.encode(data).decode()
    statuses.append(
        StatusRow(0, queue, task.task_no, task.task_id, task.workflow, number, task.incarnation, kind, now, text)
    )
    events.append(StatusPublished(number, kind, queue))
    return replace(task, status_count=number)
