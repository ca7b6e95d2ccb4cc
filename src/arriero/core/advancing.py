"""What the Scheduler decides about a task it holds: what to open, whether it is over, when to put it down."""

from collections.abc import Iterable

import msgspec

from ..calls import StepCall
from ..codec import error_text
from ..commands import Ending, NewStep, Process, PutDown
from ..model import Instant, Loaded, StepKind, StepRow, StepState, TaskFailure, TaskRow, later
from ..traceback_frames import trace_of
from .call_policy import policy_of
from .compensation import idempotency_key
from .replay import Asked, Identity, Raised, Returned, identity_of
from .supervision import on_task_failed, step_policy, task_policy


def new_step(asked: Asked, task: TaskRow, store_id: str) -> NewStep:
    """The request for what workflow code asked for; whether an Agent here takes it at once is not decided yet."""
    kind, name, key = asked.identity
    if kind is StepKind.TIMER:
        return NewStep(kind=kind, name=name, key=key, arguments=asked.arguments, fire_at=asked.fire_at)
    call: StepCall[object] = asked.call
    policy = policy_of(call, task_policy(task.policy).supervision)
    undone_by = call.step.undone_by
    return NewStep(
        kind=kind,
        name=name,
        key=key,
        agent=call.step.agent.name,
        arguments=asked.arguments,
        policy=msgspec.json.encode(policy).decode(),
        idempotency_key=idempotency_key(store_id, task.task_no, task.incarnation, kind, name, key),
        pivot=call.step.pivot if call.changed.pivot is None else call.changed.pivot,
        effect_free=call.step.effect_free,
        compensation=None if undone_by is None else undone_by.policy_text,
        complete_within=policy.complete_within,
        wait_within=policy.wait_within,
    )


def on_code_ended(
    end: Returned | Raised,
    output: str | None,
    loaded: Loaded,
    open_steps: Iterable[StepRow],
    unseen: Iterable[Identity] = (),
    convoy_state: str | None = None,
) -> Ending | None:
    """Decide what becomes of a task whose code has ended.

    Args:
        end: how.
        output: what it returned, as JSON text; None when it raised.
        loaded: task and steps as recorded.
        open_steps: steps that are still pending or running.
        unseen: steps whose results came after the code had ended.
        convoy_state: what the code wants to be kept of its convoy, as JSON text.
    Returns: None while a step the code did not wait for is open; else Process, BeginUndo or Hold by the policies.
    """
    if isinstance(end, Returned):
        assert output is not None
        return None if any(True for _ in open_steps) else Process(output, convoy_state)
    failed = {identity_of(step): step for step in loaded.life if step.state is StepState.FAILED}
    left_by = [failed[identity] for identity in end.steps if identity in failed]
    again = {*end.steps, *end.behind, *unseen}
    redo = tuple(step.ordinal for identity, step in failed.items() if identity in again)
    thens = {step_policy(step).supervision.then for step in left_by}
    failure = msgspec.structs.replace(end.failure, redo=redo)
    return on_task_failed(loaded, failure, step_then="hold" if "hold" in thens else None)


def when_to_put_down(steps: Iterable[StepRow], now: Instant, linger_seconds: float) -> PutDown | None:
    """Decide whether an idle task is put down: no attempt runs, and its next timer lies further off than ``linger_seconds``.

    A request that waits for an Agent keeps no task: its report wakes it, and while it waits others may be driven.

    Args:
        steps: its steps; none of them running here is a matter of the caller.
        now: the store's clock.
    Returns: PutDown with the time of its earliest timer (None: only a report wakes it); None: keep it.
    """
    soon = later(now, linger_seconds)
    timers: list[Instant] = []
    for step in steps:
        if step.state is StepState.RUNNING:
            return None
        if step.state is StepState.PENDING and step.kind is StepKind.TIMER and step.not_before is not None:
            if step.not_before <= soon:
                return None
            timers.append(step.not_before)
    return PutDown(min(timers, default=None))


def reopened(asked: Asked, before: StepRow, task: TaskRow, store_id: str) -> NewStep:
    """The request for a step of a resubmitted task that was withdrawn or set back and is asked for again."""
    new = new_step(asked, task, store_id)
    return msgspec.structs.replace(
        new, reopens=before.step_no, fire_at=before.not_before if asked.call is None else None
    )


def forward_of(steps: Iterable[StepRow]) -> list[StepRow]:
    """Steps and timers that workflow code asked for."""
    return [step for step in steps if step.kind is not StepKind.COMPENSATION]


def no_code(task: TaskRow) -> TaskFailure:
    """A task came to a process that does not have its workflow."""
    return TaskFailure(
        "bug",
        f"workflow {task.workflow} is not in this App: register it, or give its old name with name=",
        code="no_code",
    )


def driving_failure(error: Exception) -> TaskFailure:
    """Why a task is held whose code or record made driving it fail; a bug, so nothing is undone."""
    reason = f"the task could not be driven: {error_text(error)}"
    return TaskFailure("bug", reason, code="driving_failed", trace=trace_of(error))
