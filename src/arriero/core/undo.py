"""The undo plan: completed and in-doubt steps, in reverse of the order in which they were opened, in-doubt ones first."""

import hashlib
from collections.abc import Iterable

import msgspec

from ..model import Loaded, StepKind, StepRow, StepState, TaskRow
from ..model.failures import StepFailure, TaskFailure, read_step_failure, read_task_failure
from ..model.moves import BeginUndo, Compensate, Hold, NewStep, NextUndo, PlanUndo, UndoContext
from ..model.policies import StepPolicy
from .supervision import (
    build_pivot_failure,
    decode_task_policy,
    find_pivot,
    grow_complete_within,
    may_have_happened,
    read_step_policy,
)

FORWARD_KINDS = (StepKind.STEP, StepKind.CHILD)  # what the code asks for and an undo may have to undo
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
    Returns: PlanUndo in the order of its actions; Compensate when there is nothing to undo; Hold when a step that may have
        happened can neither be undone nor is declared effect_free, and the policy stops there (the plan is left open) or
        nothing else is to be undone; Hold without a plan when a pivot that was running as the undo began has happened,
        or may have.
    """
    pivot = find_pivot(loaded.life)
    if pivot is not None:
        return Hold(build_pivot_failure(failure, pivot), may_go_forward=True)
    forward = [step for step in reversed(loaded.life) if step.kind in FORWARD_KINDS]
    in_doubt = [
        step for step in forward if may_have_happened(step) and not (step.effect_free and step.compensation is None)
    ]
    completed = [step for step in forward if step.state is StepState.COMPLETED or _may_run_again(step)]
    planned = tuple(
        _build_child_undo(step) if step.kind is StepKind.CHILD else _build_compensation(step, loaded, store_id)
        for step in (*in_doubt, *completed)
        if step.compensation is not None
    )
    failure = _name_nothing_to_undo(failure, loaded)
    if not planned:
        return _end_undo(failure, loaded)
    stuck = list_stuck_steps(loaded.life)
    if stuck and stops_at_doubt(loaded.task):
        return Hold(_build_doubt_failure(failure, "then the undo stopped:", stuck), planned)
    return PlanUndo(failure, planned)


def stops_at_doubt(task: TaskRow) -> bool:
    """Returns True if the undo of the task does nothing before an operator has settled its steps that are stuck in doubt."""
    return decode_task_policy(task.policy).undo_on_doubt == "stop"


def may_undo_go_on(task: TaskRow, life: Iterable[StepRow]) -> bool:
    """Returns True if an undo that stopped has something to do: a stuck step leaves none, or the policy passes it over."""
    steps = tuple(life)
    if not list_stuck_steps(steps):
        return True
    return not stops_at_doubt(task) and bool(list_open_compensations(steps))


def _end_undo(failure: TaskFailure, loaded: Loaded) -> Compensate | Hold:
    """Decide the end of an undo that has no compensation left."""
    failure = _name_nothing_to_undo(failure, loaded)
    stuck = list_stuck_steps(loaded.life)
    if not stuck:
        return Compensate(failure)
    undid = any(step.kind is StepKind.COMPENSATION for step in loaded.life)
    then = "everything else was undone, but" if undid else "nothing else is to be undone, but"
    return Hold(_build_doubt_failure(failure, then, stuck))


def _name_nothing_to_undo(failure: TaskFailure, loaded: Loaded) -> TaskFailure:
    """Name the completed steps without a compensation, also one whose result an operator gave after the plan."""
    completed = [
        step for step in reversed(loaded.life) if step.kind is StepKind.STEP and step.state is StepState.COMPLETED
    ]
    names = tuple(step.label for step in completed if step.compensation is None)
    return msgspec.structs.replace(failure, nothing_to_undo=names)


def _build_doubt_failure(failure: TaskFailure, then: str, stuck: list[StepRow]) -> TaskFailure:
    names = ", ".join(step.label for step in stuck)
    have = "has" if len(stuck) == 1 else "have"
    reason = f"{failure.reason}; {then} {names} may have happened and {have} no compensation"
    nothing, trace = failure.nothing_to_undo, failure.trace
    return TaskFailure(
        "in_doubt", reason, stuck[0].name, "in_doubt", nothing, began_by=failure, trace=trace, public=failure.public
    )


def list_stuck_steps(steps: Iterable[StepRow]) -> list[StepRow]:
    """List the steps that may have happened and cannot be undone, the last opened first: only an operator can settle them."""
    return [
        step
        for step in reversed(tuple(steps))
        if step.kind is StepKind.STEP and may_have_happened(step) and step.compensation is None and not step.effect_free
    ]


def _may_run_again(step: StepRow) -> bool:
    """Returns True for a child that was undone: an operator may have resubmitted it alone since."""
    return step.kind is StepKind.CHILD and step.state is StepState.FAILED and step.fence > 0


def _build_child_undo(step: StepRow) -> NewStep:
    """Build the compensation of a child, which has no Agent: the child undoes itself."""
    return NewStep(
        kind=StepKind.COMPENSATION,
        name=step.name,
        key=step.key,
        arguments=step.arguments,
        policy=step.compensation or step.policy,
        undoes=step.step_no,
    )


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
    return step.kind in FORWARD_KINDS and step.state in (StepState.PENDING, StepState.RUNNING)


def decide_next_undo(loaded: Loaded, store_id: str) -> BeginUndo | PlanUndo | NextUndo | Compensate | Hold | None:
    """Decide the next move of a task in COMPENSATING.

    Returns: None while an attempt or a compensation is open (its report or expiry moves the task); the plan, once no
        forward step is open; then one compensation after the other; Compensate after the last; Hold when one failed, or when all is undone
        except a step that may have happened and has no compensation.
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
    return _end_undo(failure, loaded)


def _complete_within(compensation: StepRow) -> float:
    return grow_complete_within(read_step_policy(compensation), compensation.attempt)


def _build_undo_failure(compensation: StepRow, failure: TaskFailure) -> TaskFailure:
    why = StepFailure("unknown", "it was withdrawn")
    if compensation.failure:
        why = read_step_failure(compensation.failure)
    reason = f"{failure.reason}; then the undo of {compensation.label} failed: {why.message}"
    return TaskFailure(
        "undo",
        reason,
        compensation.name,
        "undo_failed",
        failure.nothing_to_undo,
        began_by=failure,
        trace=why.trace,
        public=failure.public,  # of what the customer asked for; how its undo failed is for operators
    )


def list_open_compensations(steps: tuple[StepRow, ...]) -> tuple[str, ...]:
    """List the compensations planned and not done, in the order of the plan."""
    return tuple(s.label for s in steps if s.kind is StepKind.COMPENSATION and s.state is not StepState.COMPLETED)
