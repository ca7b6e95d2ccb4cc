"""Forks: tasks that do another one again from a step on, with the results before that step as copies.

A copy has no compensation: the effect belongs to the task that did the step, and only that task undoes it. Which results stand
before a step is said by the steps' ordinals. All results that the code had when it asked for a step are of steps with lower
ordinals, so the code asks for all that is copied, in the same order, whatever of the rest is left out.
"""

from collections.abc import Sequence

import msgspec
from msgspec.structs import replace

from ..events.base import payload_hash
from ..events.task import StepCopied, TaskForked
from ..model import Loaded, StepKind, StepRow, StepState, TaskRow, TaskState, split_number, step_number
from ..model.answers import Refusal
from ..model.commands import Fork, Submit
from ..model.failures import read_step_failure
from ..model.signals import is_note, is_patch, read_taken_request
from .changes import Change, build_opened
from .deduplication import hash_body
from .supervision import decode_task_policy, may_have_happened
from .undo import FORWARD_KINDS, build_idempotency_key

FORK = "fork"


def find_source(step: StepRow) -> int | None:
    """Return the number of the step whose result a row is a copy of; None: it is not a copy.

    A failure that was copied may be done again after a resubmission, or answered by an operator. Then the step is the fork's own.
    """
    if step.fence or '"copied_from":' not in step.policy:
        return None
    number: int | None = msgspec.json.decode(step.policy).get("copied_from")
    return number


def has_result_to_copy(step: StepRow) -> bool:
    """Returns True for a row that a fork from a later step begins with."""
    return step.result_number is not None or (is_note(step.kind, step.name) and step.state is StepState.COMPLETED)


def list_before(loaded: Loaded, step: StepRow) -> list[StepRow]:
    """List the rows that the code had asked for before a step, in that order."""
    return [one for one in loaded.life if one.ordinal < step.ordinal and one.kind is not StepKind.COMPENSATION]


def list_done_again(loaded: Loaded, step: StepRow) -> list[StepRow]:
    """List the steps that happened, or may have, and that a fork from a step may do a second time."""
    return [
        one
        for one in loaded.life
        if one.ordinal >= step.ordinal
        and one.kind in FORWARD_KINDS
        and (one.state is StepState.COMPLETED or may_have_happened(one))
    ]


def refuse_fork(loaded: Loaded, step: StepRow) -> str:
    """Return why a task cannot be forked from a step, as it stands; empty: it can."""
    task = loaded.task
    named = f"step {step.label} of task {task.task_id!r}"
    if step.kind is StepKind.COMPENSATION:
        return f"step {step.ordinal} of task {task.task_id!r} is the undo of {step.label}: fork from a step of its workflow"
    if may_have_happened(step):
        return f"{named} {_describe_doubt(step)}: a fork would do it a second time; wait for its end, or answer it, and fork then"
    for one in list_before(loaded, step):
        if one.kind not in FORWARD_KINDS:
            continue
        if one.result_number is None and may_have_happened(one):
            return (
                f"step {one.label}, before {named}, {_describe_doubt(one)} and has no result to be copied; wait for its end, or"
                f" answer it, and fork then"
            )
        if _is_undone(task) and one.result_number is not None and one.compensation is not None:
            return (
                f"task {task.task_id!r} is undone, or was: {one.label}, before {named}, has a compensation, so its result must not"
                f" be used any longer; resubmit the task, or submit the work again"
            )
    return ""


def _is_undone(task: TaskRow) -> bool:
    return task.undoing or task.state in (TaskState.COMPENSATING, TaskState.COMPENSATED)


def _describe_doubt(step: StepRow) -> str:
    if step.kind is StepKind.CHILD:
        return "is another task, which has not ended"
    return "is in doubt, it may have happened" if step.in_doubt else "is being attempted now"


def build_fork(loaded: Loaded, step: StepRow, store_id: str, *, by: str = "", reason: str = "") -> Fork | Refusal:
    """Build what a fork of a task from a step begins with. The arguments are as of ``Fork``.

    Results that are recorded never change, so the fork may be committed later than the task was read.
    """
    task = loaded.task
    if refused := refuse_fork(loaded, step):
        return Refusal("not_allowed", refused, str(task.state))
    before = [one for one in list_before(loaded, step) if has_result_to_copy(one)]
    numbered = sorted((one for one in before if one.result_number is not None), key=lambda one: one.result_number or 0)
    numbers = {one.step_no: number for number, one in enumerate(numbered, 1)}
    has_begun = any(not is_patch(one) for one in before)  # else its code begins as that of a new task
    return Fork(
        of=task.task_id,
        step=step.label,
        from_step=step.step_no,
        store_id=store_id,
        by=by,
        reason=reason,
        began_at=task.started_at if has_begun else None,
        branched_at=task.branched_at,
        submitted_tags=task.submitted_tags,
        code_version=task.code_version if has_begun else None,
        copies=tuple(_copy(one, ordinal, numbers.get(one.step_no)) for ordinal, one in enumerate(before, 1)),
    )


def _copy(step: StepRow, ordinal: int, number: int | None) -> StepRow:
    """Build the copy of a step, whose task is not known yet. Nothing of it is ever attempted or undone."""
    result = step.result
    if result is not None and step.kind is StepKind.TIMER and step.name.startswith("request:"):
        result = _disown_request(result)
    return replace(
        step,
        ordinal=ordinal,
        policy=_mark(step),
        effect_free=True,
        compensation=None,
        attempt=1,
        failure_count=0,
        lost_count=0,
        taken=False,
        in_doubt=False,
        fence=0,
        locked_by=None,
        complete_by=None,
        wait_by=None,
        result=result,
        result_number=number,
        canary=None,
        charged_at=None,
        checkpoint=None,
        limit_keys=None,
    )


def _mark(step: StepRow) -> str:
    fields = msgspec.json.decode(step.policy)
    fields.setdefault("copied_from", step.step_no)  # the copy of a copy has its source
    return msgspec.json.encode(fields).decode()


def _disown_request(result: str) -> str:
    """Give a request that another task has received a number that no request to the fork has: no caller waits for the reply of the fork."""
    taken = read_taken_request(result)
    return msgspec.json.encode(replace(taken, request=-abs(taken.request))).decode()


def build_fork_submission(loaded: Loaded, fork: Fork, task_id: str) -> Submit:
    """Build the submission of a fork: the workflow, arguments, policy, priority, tags and App of the other task, and its seed.

    The code draws the same numbers again, because what it asked for before the step may depend on them.
    """
    task = loaded.task
    return Submit(
        actor="client",
        task_id=task_id,
        workflow=task.workflow,
        arguments=loaded.arguments,
        body_hash=hash_body(loaded.arguments),
        policy=task.policy,
        priority=task.priority,
        delay=0.0,
        complete_within=decode_task_policy(task.policy).complete_within,
        seed=task.seed,
        app=task.app,
        tags=task.tags,
        fork=fork,
    )


def add_copies(change: Change, fork: Fork) -> Change:
    """Return the rows of a new task that is a fork, with its copies."""
    task_no, from_step = change.task.task_no, split_number(fork.from_step)
    copies = [_number_copy(change.task, step, fork.store_id) for step in fork.copies]
    if (last := find_last_result(copies)) is not None:
        copies[last] = replace(copies[last], delivered_at=change.task.submitted_at)
    change.task = replace(
        change.task,
        started_at=fork.began_at,
        branched_at=fork.branched_at,
        submitted_tags=fork.submitted_tags,
        code_version=fork.code_version,
        opened_count=len(copies),
        result_count=sum(step.result_number is not None for step in copies),
        forked_from=fork.from_step,
    )
    assert all(step.task_no == task_no for step in copies)
    forked = TaskForked(
        of=fork.of,
        task=from_step[0],
        step=from_step[1],
        label=fork.step,
        by=fork.by,
        reason=fork.reason,
        has_begun=fork.began_at is not None,
        code_version=fork.code_version or "",
    )
    change.events += [forked, *map(_build_copied, copies)]
    change.opened += copies
    return change


def find_last_result(copies: Sequence[StepRow]) -> int | None:
    """Find the copy with whose result the time of the code continues as that of the fork; returns its index, None: there is none.

    Else a wait with a limit would be over as it begins. The code has asked for all copies before it got the last result, except
    for what it only says: a reply, which may have the time in it, keeps the time of its origin.
    """
    answered = [index for index, step in enumerate(copies) if step.result_number is not None]
    last = max(answered, key=lambda index: copies[index].result_number or 0, default=None)
    noted = any(is_note(step.kind, step.name) and not is_patch(step) for step in copies[max(answered, default=0) :])
    return None if noted else last


def _number_copy(task: TaskRow, step: StepRow, store_id: str) -> StepRow:
    key = ""
    if step.kind is not StepKind.TIMER:
        key = build_idempotency_key(store_id, task.task_no, task.incarnation, step.kind, step.name, step.key)
    number = step_number(task.task_no, step.ordinal)
    return replace(step, step_no=number, task_no=task.task_no, idempotency_key=key, app=task.app)


def _build_copied(step: StepRow) -> StepCopied:
    source = split_number(find_source(step) or 0)
    failure = None if step.failure is None or step.state is not StepState.FAILED else read_step_failure(step.failure)
    opened = build_opened(step)
    fields = {name: getattr(opened, name) for name in opened.__struct_fields__}
    return StepCopied(
        **fields,
        from_task=source[0],
        from_step=source[1],
        number=step.result_number or 0,
        result=payload_hash(step.result if failure is None else failure.message),
        failed=step.state is StepState.FAILED,
        code="" if failure is None else failure.code,
    )
