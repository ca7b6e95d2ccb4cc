"""Commands of a running attempt: more time, a checkpoint, its delivery to a program, and its release before it began.

A program has a delivered attempt until it reports, releases it, or its time is over: no process has it, and the loss of one ends
none. What the program says is guarded by the fence. An operator may end the attempt before: no process of arriero carries it out,
so there is nothing to wait for. A released attempt has not begun: nobody was asked for anything, so nothing is charged or in doubt.
"""

from collections.abc import Iterable
from typing import Any

from msgspec.structs import replace

from ..events.base import payload_hash
from ..events.step import (
    AttemptCheckpoint,
    AttemptDelivered,
    AttemptExtended,
    AttemptReleased,
    AttemptRevoked,
    AttemptTried,
    StepExpired,
)
from ..model import Instant, StepKind, StepRow, StepState, TaskRow, TaskState, later, seconds_between
from ..model.answers import Refusal, TryDelayed
from ..model.commands import BeginTry, CommandOfAttempt, DeliverAttempt, ExtendAttempt, ReleaseAttempt, SaveCheckpoint
from ..model.failures import read_task_failure
from ..model.policies import SECONDS_MAX
from .changes import Change, Refused, Rows
from .limits import LimitBook, hash_keys
from .starts import find_request_start
from .states import StepEvent, advance_step
from .supervision import compute_complete_within, is_held_by_program, read_step_policy
from .transitions import report_verdict
from .writer import Writer


def release_attempt(command: ReleaseAttempt, rows: Rows, now: Instant) -> Change | Refused:
    """Give a running attempt back, guarded by the step's fence, state and time.

    The fence grows, so whatever still speaks for the attempt is refused. An attempt whose time is over is refused, too: it is
    the Supervisor's by then.
    """
    step = rows.step(command.step_no)
    verdict = report_verdict(step, command.fence, now)
    if verdict != "applied":
        return Refused(Refusal(verdict, f"step {command.step_no} under fence {command.fence}"))
    assert step is not None
    task = rows.task(step.task_no)
    assert task is not None
    writer = Writer(task, rows, now, None)
    if step.is_canary:
        step = writer.breakers.end(step, None)
    fields: dict[str, Any] = {"fence": step.fence + 1, "locked_by": None, "complete_by": None}
    step = replace(step, **fields)
    writer.events.append(AttemptReleased(step.ordinal, step.fence))
    if writer.may_run_again(step):
        at = find_request_start(writer.task, now)
        state = advance_step(step.state, StepEvent.HOLDER_LOST)
        wait_by = None if at is None else _compute_wait_by(step, at)
        writer.put(replace(step, state=state, not_before=at, wait_by=wait_by))
    else:
        writer.put(writer.close_step(step))
        writer.wake_task()
    writer.set(revision=task.revision + 1)
    return writer.change()


def _compute_wait_by(step: StepRow, start: Instant) -> Instant | None:
    """Compute the deadline for the next first attempt. The time begins again: the request has waited for nobody meanwhile."""
    within = read_step_policy(step).wait_within
    was_tried = step.attempt > 1 or step.lost_count
    return None if within is None or was_tried else later(start, within)


EventOfAttempt = AttemptExtended | AttemptCheckpoint | AttemptTried | AttemptDelivered

RATE_LOOK_SECONDS = 1.0  # until a rate is asked again that does not know when it has room
EXTEND_MAX_FACTOR = 10.0  # times complete_within, where the step does not say how long an attempt may become


def find_latest_complete_by(step: StepRow) -> Instant:
    """Return the instant to which an attempt can be extended at most. ``step``: as it was dispatched."""
    assert step.complete_by is not None
    policy = read_step_policy(step)
    within = compute_complete_within(step)
    most = within * EXTEND_MAX_FACTOR if policy.extend_max is None else policy.extend_max
    return later(step.complete_by, max(min(most, SECONDS_MAX) - within, 0.0))


def has_expired(step: StepRow | None, fence: int, complete_by: Instant) -> bool:
    """Decide whether an attempt whose time is over for its process is still open, without a report.

    Args:
        step: as its row stands; None: it is not there any longer.
        complete_by: the deadline of the attempt as its process knows it.
    Returns: False if it was reported, or extended, by way of another process. False under another fence, too: then the
        history says how it ended (``was_found_expired``).
    """
    if step is None or step.fence != fence:
        return False
    return step.state is StepState.RUNNING and step.complete_by is not None and step.complete_by <= complete_by


def was_found_expired(events: Iterable[object], ordinal: int, fence: int) -> bool:
    """Returns True if the Supervisor found an attempt of a step expired, by the events of its task. ``fence``: the attempt's.

    Otherwise it was reported or given back by way of another process.
    """
    wanted = (ordinal, fence + 1)  # the event has the fence that it grew to
    return any(isinstance(event, StepExpired) and (event.step, event.fence) == wanted for event in events)


def extend_attempt(command: ExtendAttempt, rows: Rows, now: Instant) -> Change | Refused:
    """Move the deadline of a running attempt, never back. The change is empty if it lies that late already."""
    step = find_running(command, rows, now)
    if isinstance(step, Refused):
        return step
    assert step.complete_by is not None
    moved = max(step.complete_by, min(later(now, command.seconds), command.latest))
    extended = replace(step, complete_by=moved)
    return change_attempt(
        extended, rows, AttemptExtended(step.ordinal, command.fence, moved) if extended != step else None
    )


def save_checkpoint(command: SaveCheckpoint, rows: Rows, now: Instant) -> Change | Refused:
    """Keep a value of a running attempt. The change is empty if it is kept already: the answer of a commit was lost."""
    step = find_running(command, rows, now)
    if isinstance(step, Refused):
        return step
    if step.checkpoint != command.value and payload_hash(step.checkpoint) != command.replaces:
        return _refuse("moved_on", command)
    kept = replace(step, checkpoint=command.value)
    event = AttemptCheckpoint(step.ordinal, command.fence, payload_hash(command.value))
    return change_attempt(kept, rows, event if kept != step else None)


def begin_try(command: BeginTry, rows: Rows, now: Instant, limits: LimitBook | None) -> Change | Refused | TryDelayed:
    """Count another call of a running attempt under the rates of its Agent, or say when it may be made.

    If a call before it may have happened, the step is in doubt from here on: the one who ends the attempt finds that in its row.
    The revision grows with that, because a pivot in doubt changes what the task's holder may decide.

    Args:
        limits: of the Agent, locked by the transaction; None: it has none any longer.
    """
    step = find_running(command, rows, now)
    if isinstance(step, Refused):
        return step
    if limits is not None and not limits.may_begin_call(step.limit_keys):
        next_at = limits.compute_next_at()
        return TryDelayed(RATE_LOOK_SECONDS if next_at is None else max(seconds_between(now, next_at), 0.0))
    counted: dict[str, str] = {}
    if limits is not None:
        limits.begin_call(step.limit_keys, now)
        counted = dict(hash_keys(limits.row.limits, step.limit_keys, rates_only=True))
    is_doubted = command.in_doubt and not step.in_doubt
    tried = AttemptTried(step.ordinal, command.fence, counted, is_doubted) if counted or is_doubted else None
    change = change_attempt(replace(step, in_doubt=step.in_doubt or command.in_doubt), rows, tried)
    if is_doubted:
        change.task = replace(change.task, revision=change.task.revision + 1)
    return change


def find_running(command: CommandOfAttempt, rows: Rows, now: Instant) -> StepRow | Refused:
    """Return the step's row, guarded by its fence, state and holder, and by its time. An attempt that its program holds has no process."""
    step = rows.step(command.step_no)
    if step is None:
        return _refuse("unknown", command)
    if step.fence != command.fence:
        return _refuse("stale", command)
    if step.state is not StepState.RUNNING or step.locked_by not in (None, command.process_no):
        return _refuse("moved_on", command)
    if step.complete_by is None or now >= step.complete_by:
        return _refuse("late", command)
    return step


def _refuse(verdict: str, command: CommandOfAttempt) -> Refused:
    return Refused(Refusal(verdict, f"step {command.step_no} under fence {command.fence}"))


def change_attempt(step: StepRow, rows: Rows, event: EventOfAttempt | None) -> Change:
    """Build the change. The revision stays: the holder of the task decides the same, whether an attempt has more time or not."""
    task = rows.task(step.task_no)
    assert task is not None
    return Change(task, [step], [], [] if event is None else [event], [])


def may_revoke(step: StepRow) -> bool:
    """Returns True if an operator's cancel ends the attempt of a step. It waits for a pivot: that decides if anything may be undone."""
    return step.kind is StepKind.STEP and is_held_by_program(step) and not step.pivot


def deliver_attempt(command: DeliverAttempt, rows: Rows, now: Instant) -> Change | Refused:
    """Give a running attempt to its program, guarded by the step's fence, state, holder and time.

    If an operator has cancelled the task meanwhile, the attempt ends with that, as it would have a moment later. The change is
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
    """End an attempt that its program holds, for an operator. Returns the row: a request that waits, in doubt.

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
        not_before=find_request_start(writer.task, writer.now),
    )
    writer.events.append(AttemptRevoked(step.ordinal, revoked.fence))
    writer.put(revoked)
    return revoked
