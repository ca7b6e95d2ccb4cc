"""Changes of the limits of a live task and its steps, as an operator asks for them: the verbs ``extend`` and ``adjust``.

The limits of a step are in the policy of its row, where each decision about the step reads them. So nothing else has to learn of the
change. An attempt that runs keeps the time that it began with; its failure is judged by the limits as they are then.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from ..events.step import StepAdjusted
from ..model import STEP_OPEN, TASK_FORWARD, Instant, StepKind, StepRow, StepState, later
from ..model.commands import Operate
from ..model.policies import StepPolicy, encode_policy, read_limit, set_limits
from ..text.format import format_count, format_step
from .starts import find_request_start, find_start
from .supervision import compute_complete_within, read_step_policy
from .verb_guards import NotCarriedOut, is_done_by_child, may_come_again
from .writer import Writer

UNCHANGED_SHOWN_MAX = 5  # steps that a history names of those that did not take what was asked for all

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
    Returns: what the event of the verb says, also which of the open steps did not take all of it; that of each step is written.
    Raises: NotCarriedOut - the task or the named step does not take them, or none of the open steps does. A new deadline is not
        refused because the open steps have nothing to change.
    """
    said: dict[str, Any] = {}
    if command.within:
        said = _adjust_deadline(writer, command.within)
    if command.limits is None:
        return said
    limits = _read_limits(command.limits)
    if command.step is not None:
        named = [step for step in life if step.kind is not StepKind.TIMER and step.ordinal == command.step]
        if not named:
            raise NotCarriedOut(
                f"task {writer.task.task_id!r} has no step number {command.step} whose limits could change"
            )
        _adjust_step(writer, named[0], limits)
        return said
    unchanged = _adjust_open_steps(writer, life, limits, is_alone=not said)
    return said | {"unchanged": unchanged} if unchanged else said


def _adjust_open_steps(
    writer: Writer, life: Iterable[StepRow], limits: Mapping[str, float | None], *, is_alone: bool
) -> tuple[str, ...]:
    """Change what each open step takes of the limits. Returns in words what was not changed.

    Args:
        is_alone: nothing else is asked for, so a change of nothing is refused.
    """
    task_id = writer.task.task_id
    steps = [step for step in life if step.kind is not StepKind.TIMER]
    named = [step for step in steps if may_come_again(writer.task, step)]
    children = _describe_children([step for step in steps if is_done_by_child(step)])
    if not named and is_alone:
        raise NotCarriedOut(f"task {task_id!r} has no open step whose limits could change{'; '.join(('', *children))}")
    refusals: list[NotCarriedOut] = []
    count = 0  # of steps that were changed
    for step in named:
        try:
            without_delay = _adjust_step(writer, step, limits, may_keep_delay=True)
        except NotCarriedOut as refused:
            refusals.append(refused)
            continue
        count += 1
        if without_delay is not None:
            refusals.append(NotCarriedOut(f"delay: {_strip(without_delay, task_id)}"))
    if not count and refusals and (is_alone or not all(isinstance(one, _NothingToChange) for one in refusals)):
        raise next((one for one in refusals if not isinstance(one, _NothingToChange)), refusals[0])
    if not named:
        return children or ("there is no open step",)
    shown = tuple(_strip(one, task_id) for one in refusals[:UNCHANGED_SHOWN_MAX])
    left = len(refusals) - len(shown)
    more = (f"and limits of {format_count(left, 'more step')}",) if left else ()
    return (*shown, *more, *children)


def _describe_children(steps: Sequence[StepRow]) -> tuple[str, ...]:
    """Say that the children of the task keep their limits; empty: none is open."""
    if not steps:
        return ()
    return (f"limits of {format_count(len(steps), 'child task')}: adjust those tasks themselves",)


class _NothingToChange(NotCarriedOut):
    """A step has what is asked for, or no next attempt of it is due that could be moved."""


def _strip(refused: NotCarriedOut, task_id: str) -> str:
    """The text of a refusal without the name of the task."""
    return str(refused).removeprefix(f"task {task_id!r}: ")


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


def _adjust_step(
    writer: Writer, step: StepRow, asked: Mapping[str, float | None], *, may_keep_delay: bool = False
) -> NotCarriedOut | None:
    """Change the limits of a step, and write the event. Raises NotCarriedOut.

    Returns: with ``may_keep_delay``, why its delay is not changed, though its limits are.
    """
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
    kept: NotCarriedOut | None = None
    if (delay := asked.get("delay")) is not None:
        try:
            at = _find_next_start(writer, step, delay)
        except NotCarriedOut as refused:
            if not may_keep_delay or not limits:
                raise
            kept = refused
        else:
            before["not_before"], limits["not_before"] = step.not_before, at
            adjusted = replace(adjusted, not_before=at)
    if not limits:
        raise _build_refusal(writer, step, "has these limits already", _NothingToChange)
    writer.put(_wait_again(writer, step, adjusted, changed))
    writer.events.append(StepAdjusted(step=step.ordinal, limits=limits, before=before))
    return kept


def _refuse_closed(writer: Writer, step: StepRow) -> None:
    if step.is_of_child:
        raise _build_refusal(writer, step, "is another task, with limits of its own: adjust that task")
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
        says = "is being attempted now: its next attempt is not due yet"
        raise _build_refusal(writer, step, says, _NothingToChange)
    if step.state is StepState.PLANNED:
        says = "waits for its turn in the undo: no attempt of it is due yet"
        raise _build_refusal(writer, step, says, _NothingToChange)
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


def _build_refusal(
    writer: Writer, step: StepRow, says: str, kind: type[NotCarriedOut] = NotCarriedOut
) -> NotCarriedOut:
    return kind(f"task {writer.task.task_id!r}: {format_step(step)} {says}")
