"""The undo plan: completed and in-doubt steps, in reverse of the order in which they were opened, in-doubt ones first."""

import hashlib
from collections.abc import Iterable

import msgspec

from ..commands import BeginUndo, Compensate, Hold, NewStep, NextUndo, PlanUndo
from ..failures import StepFailure, TaskFailure, read_step_failure, read_task_failure
from ..model import Loaded, StepKind, StepRow, StepState, UndoContext
from ..policies import StepPolicy
from .supervision import build_pivot_failure, find_pivot, grow_complete_within, may_have_happened, read_step_policy

_read_policy = msgspec.json.Decoder(StepPolicy).decode


def build_idempotency_key(store_id: str, task_no: int, incarnation: int, kind: StepKind, name: str, key: str) -> str:
    """Build the key of a step or of its compensation: the same over all attempts, unlike any other.

    Args:
        store_id: random per store, so that two stores never share a key.
        task_no: not the business id: a purged task's id may be given again, its number never is.
        kind: a compensation's key differs from its step's.
    Returns: 32 hexadecimal digits.
    """
    parts = "\x1f".join((store_id, str(task_no), str(incarnation), kind, name, key))
    return hashlib.blake2b(parts.encode(), digest_size=16).hexdigest()


def plan_undo(loaded: Loaded, failure: TaskFailure, store_id: str) -> PlanUndo | Compensate | Hold:
    """Decide the undo of a task with no forward step open.

    Args:
        loaded: the task, compensating (or about to), and its steps.
        failure: why it is undone.
        store_id: for the compensations' keys.
    Returns: PlanUndo in the order of its actions; Compensate when there is nothing to undo; Hold, with the plan left
        open, when a step that may have happened can neither be undone nor is declared effect_free; Hold without a plan
        when a pivot that was under way as the undo began has happened, or may have.
    """
    pivot = find_pivot(loaded.life)
    if pivot is not None:
        return Hold(build_pivot_failure(failure, pivot), may_go_forward=True)
    forward = [step for step in reversed(loaded.life) if step.kind is StepKind.STEP]
    in_doubt = [
        step for step in forward if may_have_happened(step) and not (step.effect_free and step.compensation is None)
    ]
    completed = [step for step in forward if step.state is StepState.COMPLETED]
    stuck = list_stuck_steps(loaded.life)
    nothing_to_undo = tuple(step.label for step in completed if step.compensation is None)
    planned = tuple(
        _build_compensation(step, loaded, store_id) for step in (*in_doubt, *completed) if step.compensation is not None
    )
    failure = msgspec.structs.replace(failure, nothing_to_undo=nothing_to_undo)
    if stuck:
        names = ", ".join(step.label for step in stuck)
        reason = f"{failure.reason}; then the undo stopped: {names} may have happened and has no compensation"
        name, trace = stuck[0].name, failure.trace
        held = TaskFailure("in_doubt", reason, name, "in_doubt", nothing_to_undo, began_by=failure, trace=trace)
        return Hold(held, planned)
    return PlanUndo(failure, planned) if planned else Compensate(failure)


def list_stuck_steps(steps: Iterable[StepRow]) -> list[StepRow]:
    """List the steps that may have happened and cannot be undone, the last opened first: only a person can settle them."""
    return [
        step
        for step in reversed(tuple(steps))
        if step.kind is StepKind.STEP and may_have_happened(step) and step.compensation is None and not step.effect_free
    ]


def _build_compensation(step: StepRow, loaded: Loaded, store_id: str) -> NewStep:
    completed = step.state is StepState.COMPLETED
    assert step.compensation is not None
    context = UndoContext(
        "completed" if completed else "unknown",
        step.idempotency_key,
        step.result if completed else None,
        step.checkpoint,
    )
    task = loaded.task
    return NewStep(
        kind=StepKind.COMPENSATION,
        name=step.name,
        key=step.key,
        agent=step.agent,
        arguments=step.arguments,
        policy=step.compensation,
        # With the ordinal: after a resubmission two steps of one name and key may have happened, each to be undone.
        idempotency_key=build_idempotency_key(
            store_id, task.task_no, task.incarnation, StepKind.COMPENSATION, step.name, f"{step.key}\x1f{step.ordinal}"
        ),
        undoes=step.step_no,
        undo=msgspec.json.encode(context).decode(),
        complete_within=_read_policy(step.compensation).complete_within,
        target=step.target,
        limit_keys=step.limit_keys,
        routing=step.routing,
    )


def is_forward_open(step: StepRow) -> bool:
    """Returns True for a forward step that may still be taken or is being attempted."""
    return step.kind is StepKind.STEP and step.state in (StepState.PENDING, StepState.RUNNING)


def decide_next_undo(loaded: Loaded, store_id: str) -> BeginUndo | PlanUndo | NextUndo | Compensate | Hold | None:
    """Decide the next move of a task in COMPENSATING.

    Returns: None while an attempt or a compensation is open (its report or expiry moves the task); the plan, once no
        forward step is open; then one compensation after the other; Compensate after the last; Hold when one failed.
    """
    assert loaded.task.failure is not None
    failure = read_task_failure(loaded.task.failure)
    if any(is_forward_open(step) for step in loaded.life):
        return None
    compensations = [step for step in loaded.life if step.kind is StepKind.COMPENSATION]
    if not compensations:
        return plan_undo(loaded, failure, store_id)
    for compensation in compensations:
        match compensation.state:
            case StepState.COMPLETED:
                continue
            case StepState.FAILED | StepState.WITHDRAWN:
                return Hold(_build_undo_failure(compensation, failure))
            case StepState.PLANNED:
                return NextUndo(compensation.step_no, False, _complete_within(compensation))
            case _:
                return None
    return Compensate(failure)


def _complete_within(compensation: StepRow) -> float:
    return grow_complete_within(read_step_policy(compensation), compensation.attempt)


def _build_undo_failure(compensation: StepRow, failure: TaskFailure) -> TaskFailure:
    why = StepFailure("unknown", "it was withdrawn")
    if compensation.failure:
        why = read_step_failure(compensation.failure)
    reason = f"{failure.reason}; then the undo of {compensation.label} failed: {why.message}"
    nothing = failure.nothing_to_undo
    return TaskFailure("undo", reason, compensation.name, "undo_failed", nothing, began_by=failure, trace=why.trace)


def list_open_compensations(steps: tuple[StepRow, ...]) -> tuple[str, ...]:
    """List the compensations planned and not done, in the order of the plan."""
    return tuple(s.label for s in steps if s.kind is StepKind.COMPENSATION and s.state is not StepState.COMPLETED)
