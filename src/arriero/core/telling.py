"""How what a command changes is told: events of the history, and statuses for the submitter."""

from typing import Any

import msgspec
from msgspec.structs import replace

from ..model import (
    STEP_BITS,
    Instant,
    StatusKind,
    StatusRow,
    StepKind,
    StepRow,
    StepState,
    TaskFailure,
    TaskRow,
    TaskState,
)
from .chain import payload_hash

Event = dict[str, Any]

STATUS_OF_END: dict[TaskState, StatusKind] = {
    TaskState.PROCESSED: "completed",
    TaskState.COMPENSATED: "compensated",
    TaskState.ERROR: "needs_attention",
}


def dispatched(step: StepRow) -> Event:
    """The event of an attempt that begins."""
    return {
        "type": "compensation.dispatched" if step.kind is StepKind.COMPENSATION else "step.dispatched",
        "step": step.ordinal,
        "attempt": step.attempt,
        "fence": step.fence,
        "complete_by": step.complete_by,
        "process": step.locked_by,
        "key": step.idempotency_key,
    }


def opened(step: StepRow) -> Event:
    """The event of a step, compensation or timer that is opened; also what it says when it is opened again."""
    event: Event = {"type": "step.opened", "step": step.ordinal, "kind": step.kind, "name": step.name, "key": step.key}
    if step.kind is StepKind.TIMER:
        event["fire_at"] = step.not_before
        return event
    event |= {"agent": step.agent, "idempotency_key": step.idempotency_key, "arguments": payload_hash(step.arguments)}
    event |= {"policy": msgspec.Raw(step.policy.encode())}
    flags = {"pivot": step.pivot, "effect_free": step.effect_free, "undoable": step.compensation is not None}
    for flag, is_set in flags.items():
        if is_set:
            event[flag] = True
    if step.undoes is not None:
        event["undoes"] = step.undoes & ((1 << STEP_BITS) - 1)
    if step.state is StepState.PLANNED:
        event["planned"] = True
    return event


def published(
    task: TaskRow,
    kind: StatusKind,
    now: Instant,
    events: list[Event],
    statuses: list[StatusRow],
    *,
    failure: TaskFailure | None = None,
    output: str | None = None,
) -> TaskRow:
    """The task after a status was added to ``events`` and ``statuses``; as it was when nobody wants to be told."""
    queue = task.reply_to
    if queue is None:
        return task
    number = task.status_count + 1
    data: dict[str, Any] = {}
    if failure is not None:
        data = {"reason": failure.reason, "cause": failure.kind, "step": failure.step, "code": failure.code}
    elif output is not None:
        data = {"output": msgspec.Raw(output.encode())}
    text = msgspec.json.encode(data).decode()
    statuses.append(
        StatusRow(0, queue, task.task_no, task.task_id, task.workflow, number, task.incarnation, kind, now, text)
    )
    events.append({"type": "status.published", "number": number, "kind": kind, "queue": queue})
    return replace(task, status_count=number)
