"""Attempts that go back before their work has begun: nobody was asked for anything, so nothing is charged or in doubt.

An Agent outside of Python takes a request and then cannot work on it, or a request was taken for an Agent that has gone away.
"""

from typing import Any

from msgspec.structs import replace

from ..answers import Refusal
from ..commands import ReleaseAttempt
from ..events.step import AttemptReleased
from ..model import Instant, StepRow, later
from .changes import Change, Refused, Rows
from .states import StepEvent, advance_step
from .supervision import read_step_policy
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
        at = writer.start_unless_paused(now)
        state = advance_step(step.state, StepEvent.HOLDER_LOST)
        writer.put(replace(step, state=state, not_before=at, wait_by=_compute_wait_by(step, now)))
    else:
        writer.put(writer.close_step(step))
        writer.wake_task()
    writer.set(revision=task.revision + 1)
    return writer.change()


def _compute_wait_by(step: StepRow, now: Instant) -> Instant | None:
    """Compute the deadline for the next first attempt. The time begins anew: the request has waited for nobody meanwhile."""
    within = read_step_policy(step).wait_within
    was_tried = step.attempt > 1 or step.lost_count
    return None if within is None or was_tried else later(now, within)
