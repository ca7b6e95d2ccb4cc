"""Changes of the limits of a live task and its steps, as an operator asks for them: the verbs ``extend`` and ``adjust``.

The limits of a step are in the policy of its row, where each decision about the step reads them. So nothing else has to learn of the
change. An attempt that runs keeps the time that it began with; its failure is judged by the limits as they are then.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
from msgspec.structs import replace

from ..events.step import StepAdjusted
from ..model import STEP_OPEN, TASK_FORWARD, Instant, StepKind, StepRow, StepState, later
from ..model.commands import Operate
from ..model.policies import StepPolicy, encode_policy, read_limit, set_limits
from ..text.format import format_step
from .starts import find_request_start, find_start
from .supervision import compute_complete_within, read_step_policy
from .verb_guards import NotCarriedOut, may_come_again
from .writer import Writer

_read_limits = msgspec.json.Decoder(dict[str, int | float | None]).decode


def extend(writer: Writer, command: Operate) -> dict[str, Any]:
    """Move the task's own limit to later. Returns what the event says. Raises NotCarriedOut."""
    task = writer.task
    assert task.complete_by is not None
    until = later(writer.now, command.within)
    if until <= task.complete_by:
        raise NotCarriedOut(
            f"task {task.task_id!r}: its limit lies later than that already; extend only moves it later, adjust also earlier"
        )
    return _set_deadline(writer, until)


def adjust(writer: Writer, life: Iterable[StepRow], command: Operate) -> dict[str, Any]:
    """Change the task's deadline, the limits of one step, or those of each open step that takes them.

    Args:
        life: the steps that count.
    Returns: what the event of the verb says; that of each step is written.
    Raises: NotCarriedOut - the task or the named step does not take them, or none of the open steps does.
    """
    said: dict[str, Any] = {}
    if command.within:
        said = _adjust_deadline(writer, command.within)
    if command.limits is None:
        return said
    limits = _read_limits(command.limits)
    named = [step for step in life if step.kind is not StepKind.TIMER and command.step in (None, step.ordinal)]
    if command.step is None:
        named = [step for step in named if step.state in STEP_OPEN or step.state is StepState.PLANNED]
    if not named:
        which = "open step" if command.step is None else f"step number {command.step}"
        raise NotCarriedOut(f"task {writer.task.task_id!r} has no {which} whose limits could change")
    reasons: list[str] = []
    for step in named:
        try:
            _adjust_step(writer, step, limits)
        except NotCarriedOut as refused:
            reasons.append(str(refused))
    if len(reasons) == len(named):
        raise NotCarriedOut(reasons[0])
    return said


def _adjust_deadline(writer: Writer, within: float) -> dict[str, Any]:
    task, until = writer.task, later(writer.now, within)
    if task.state not in TASK_FORWARD:
        raise NotCarriedOut(
            f"task {task.task_id!r} is being undone: an undo has no deadline; limits of its steps can change"
        )
    if task.snoozed_until is not None and task.snoozed_until >= until:
        raise NotCarriedOut(f"task {task.task_id!r}: its snooze ends after that: shorten it first, by another snooze")
    return _set_deadline(writer, until)


def _set_deadline(writer: Writer, until: Instant) -> dict[str, Any]:
    before = writer.task.complete_by
    writer.set(complete_by=until)
    return {"complete_by": until, "complete_by_before": before}


def _adjust_step(writer: Writer, step: StepRow, asked: Mapping[str, float | None]) -> None:
    """Change the limits of a step, and write the event. Raises NotCarriedOut."""
    _refuse_closed(writer, step)
    policy = read_step_policy(step)
    limits = {name: value for name, value in asked.items() if name != "delay" and read_limit(policy, name) != value}
    changed = set_limits(policy, limits)
    _refuse_few_attempts(writer, step, changed)
    before: dict[str, float | None] = {name: read_limit(policy, name) for name in limits}
    adjusted = step
    if limits:
        if step.state is StepState.RUNNING and "complete_within" in limits:
            changed = replace(changed, began_with=(step.fence, compute_complete_within(step)))
        adjusted = replace(step, policy=encode_policy(changed))
    if (delay := asked.get("delay")) is not None:
        before["not_before"] = step.not_before
        limits["not_before"] = at = _find_next_start(writer, step, delay)
        adjusted = replace(adjusted, not_before=at)
    if not limits:
        raise _build_refusal(writer, step, "has these limits already")
    writer.put(_wait_again(writer, step, adjusted, changed))
    writer.events.append(StepAdjusted(step=step.ordinal, limits=limits, before=before))


def _refuse_closed(writer: Writer, step: StepRow) -> None:
    if step.state not in STEP_OPEN and step.state is not StepState.PLANNED:
        raise _build_refusal(writer, step, f"is {step.state}: no attempt of it comes whose limits could change")
    if not may_come_again(writer.task, step):
        raise _build_refusal(writer, step, "is not tried again, because the task is being undone")


def _refuse_few_attempts(writer: Writer, step: StepRow, policy: StepPolicy) -> None:
    supervision, failed = policy.supervision, step.failure_count
    if supervision.attempts * supervision.rounds <= failed:
        says = f"has failed {failed} times already: give it at least {failed + 1} attempts in all (attempts x rounds)"
        raise _build_refusal(writer, step, says)


def _find_next_start(writer: Writer, step: StepRow, delay: float) -> Instant:
    """Find the instant of a request's next attempt. Raises NotCarriedOut - none waits, or an operator holds the task up."""
    if step.state is StepState.RUNNING:
        raise _build_refusal(writer, step, "is being attempted now: its next attempt is not due yet")
    if step.state is StepState.PLANNED:
        raise _build_refusal(writer, step, "waits for its turn in the undo: no attempt of it is due yet")
    if writer.task.paused_at is not None:
        raise _build_refusal(writer, step, "belongs to a paused task: resume it, then its attempts begin immediately")
    at = later(writer.now, delay)
    if find_start(writer.task, at) != at:
        raise _build_refusal(writer, step, "belongs to a snoozed task: snooze it again, for less time")
    return at


def _wait_again(writer: Writer, step: StepRow, adjusted: StepRow, policy: StepPolicy) -> StepRow:
    """Let a request that no Agent has taken yet wait by its new limit, from now or from its new start."""
    has_changed = adjusted.not_before != step.not_before or policy.wait_within != read_step_policy(step).wait_within
    if not has_changed or step.state is not StepState.PENDING or step.taken:
        return adjusted
    start = find_request_start(writer.task, max(adjusted.not_before or writer.now, writer.now))
    within = policy.wait_within
    return replace(adjusted, wait_by=None if within is None or start is None else later(start, within))


def _build_refusal(writer: Writer, step: StepRow, says: str) -> NotCarriedOut:
    return NotCarriedOut(f"task {writer.task.task_id!r}: {format_step(step)} {says}")
