"""Attempts that programs hold: from the delivery of the request on, no process has the attempt, and the loss of one ends none.

A program has the attempt until it reports, releases it, or its time is over. What it says is guarded by the fence. A person may end
the attempt before: no process of arriero carries it out, so there is nothing to wait for.
"""

from msgspec.structs import replace

from ..commands import DeliverAttempt
from ..events.step import AttemptDelivered, AttemptRevoked
from ..failures import read_task_failure
from ..model import Instant, StepKind, StepRow, TaskRow, TaskState
from .attempts import change_attempt, find_running
from .changes import Change, Refused, Rows
from .states import StepEvent, advance_step
from .supervision import is_held_by_program
from .writer import Writer


def may_revoke(step: StepRow) -> bool:
    """Returns True if a person's cancel ends the attempt of a step. It waits for a pivot: that decides if anything may be undone."""
    return step.kind is StepKind.STEP and is_held_by_program(step) and not step.pivot


def deliver_attempt(command: DeliverAttempt, rows: Rows, now: Instant) -> Change | Refused:
    """Give a running attempt to its program, guarded by the step's fence, state, holder and time.

    If a person has cancelled the task meanwhile, the attempt ends with that, as it would have a moment later. The change is
    empty if the program has the attempt already: the answer of a commit was lost.
    """
    step = find_running(command, rows, now)
    if isinstance(step, Refused):
        return step
    if step.locked_by is None:
        return change_attempt(step, rows, None)
    delivered, event = replace(step, locked_by=None), AttemptDelivered(step.ordinal, command.fence)
    task = rows.task(step.task_no)
    assert task is not None
    if not (_is_cancelled(task) and may_revoke(delivered)):
        return change_attempt(delivered, rows, event)
    writer = Writer(task, rows, now, None)
    writer.events.append(event)
    writer.put(writer.close_step(revoke_attempt(writer, delivered)))
    writer.wake_task()
    writer.set(revision=task.revision + 1)
    return writer.change()


def _is_cancelled(task: TaskRow) -> bool:
    if task.state is not TaskState.COMPENSATING or task.failure is None:
        return False
    return read_task_failure(task.failure).kind == "person"


def revoke_attempt(writer: Writer, step: StepRow) -> StepRow:
    """End an attempt that its program holds, for a person. Returns the row: a request that waits, in doubt.

    The program may be at work. It learns of the end with its next report or extension, which is refused as stale.
    """
    if step.is_canary:
        step = writer.breakers.end(step, None)
    revoked = replace(
        step,
        state=advance_step(step.state, StepEvent.HOLDER_LOST),
        fence=step.fence + 1,
        complete_by=None,
        in_doubt=True,
        not_before=writer.start_unless_paused(writer.now),
    )
    writer.events.append(AttemptRevoked(step.ordinal, revoked.fence))
    writer.put(revoked)
    return revoked
